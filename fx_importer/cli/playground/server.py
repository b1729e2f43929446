"""The server of the playground: on loopback, for clients that know its token, and may be slow or silent."""

from __future__ import annotations

import contextlib
import hmac
import io
import json
import secrets
import select
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fx_importer.cli.playground.compilation import compile_source, new_worker
from fx_importer.cli.playground.page import playground_page
from fx_importer.diagnostics.explorer import html_page
from fx_importer.errors import UsageError
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from fx_importer.process.forking_process import CancelledError, ForkingProcess

LOOPBACK = "127.0.0.1"
_LARGEST = 1_000_000
"""Bytes of a request."""
_CONNECTIONS = 64
"""Open connections. The oldest one that has not sent its request makes room for a new one."""
_WAITING = 8
"""Programs that are compiled or wait for it."""
REQUEST_SECONDS, ANSWER_SECONDS = 10, 30
"""Seconds in which a client sends the whole of its request, and reads the whole of the answer."""


class Playground(ThreadingHTTPServer):
    """A server that compiles one program at a time. Nothing listens before it is made."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, output_type: OutputType, limits: Limits):
        """Listen on ``port``, 0 for a free one.

        Raises:
            UsageError: if the port is not free.
        """
        self.token = secrets.token_urlsafe(24)
        self.output_type, self.limits = output_type, limits
        self.compiling = threading.Lock()
        self.waiting = threading.BoundedSemaphore(_WAITING)
        self.clients = ClientConnections(_CONNECTIONS)
        self._worker: ForkingProcess | None = None
        self._starting = threading.Lock()
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(f"cannot listen on {LOOPBACK}:{port}: {error}") from None

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def worker(self) -> ForkingProcess:
        """Return the process of compilations, which the first call starts."""
        with self._starting:
            self._worker = self._worker or new_worker()
            return self._worker

    def server_close(self) -> None:
        """Stop listening, and end the process of compilations."""
        super().server_close()
        with self._starting:
            if self._worker is not None:
                self._worker.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection ``request``, if there is room for it."""
        if self.clients.add(request):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection ``request``."""
        self.clients.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing for a client that goes away, or that is too slow."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Playground  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version, sys_version = "fx-importer", ""

    def setup(self) -> None:
        """Read the request against a clock."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(TimedReader(self.connection, REQUEST_SECONDS))

    def do_GET(self) -> None:
        path = self._path()
        if path == "":
            self.server.worker()  # prepares while the page is read
            page, policy = playground_page(self.server.output_type)
            self._answer(HTTPStatus.OK, page, policy=policy)
        elif path == "explorer":
            self._answer(HTTPStatus.OK, html_page(None))  # its policy is in it
        else:
            self._answer(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_POST(self) -> None:
        if self._path() != "compile":
            self._answer(HTTPStatus.NOT_FOUND, "there is no such page")
            return
        try:
            length = int(self.headers.get("Content-Length", ""))
            if not 0 <= length <= _LARGEST:
                raise ValueError
            request = json.loads(self.rfile.read(length))
            source, output_type = str(request["source"]), OutputType.get(str(request["output_type"]))
            source.encode()  # raises for half of a surrogate pair
        except (ValueError, KeyError, TypeError, RecursionError, UsageError):
            self._answer(HTTPStatus.BAD_REQUEST, "a program and an output type are needed")
            return
        self.server.clients.has_sent(self.connection)
        if not self.server.waiting.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{_WAITING} programs wait to be compiled: try again later")
            return
        try:
            self._compile(source, output_type)
        except CancelledError:
            self.close_connection = True
        finally:
            self.server.waiting.release()

    def _compile(self, source: str, output_type: OutputType) -> None:
        """Answer with a line of JSON for each stage, and one for the outcome.

        Raises:
            CancelledError: if the client is gone.
        """
        while not self.server.compiling.acquire(timeout=0.1):  # for at most the time limit of each program that waits
            if self._is_gone():
                raise CancelledError
        try:
            self._head(HTTPStatus.OK, "application/x-ndjson")
            self._line(stage="start")
            worker = self.server.worker()
            note = lambda stage: self._line(stage=stage)  # noqa: E731
            outcome = compile_source(source, output_type.value, self.server.limits, worker, note, self._is_gone)
        finally:
            self.server.compiling.release()
        self._line(message=outcome.message, contents=outcome.contents)

    def _line(self, **values: str | None) -> None:
        try:
            self.wfile.write(json.dumps(values).encode() + b"\n")
        except OSError:
            raise CancelledError from None

    def _is_gone(self) -> bool:
        """Return whether the client has closed the connection, as for a newer program."""
        try:
            readable = select.select([self.connection], [], [], 0)[0]
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _path(self) -> str | None:
        """Return the path after the token; None without the token, or for another host's name, or of its page."""
        own = f"{LOOPBACK}:{self.server.server_port}"
        _, token, *rest = f"{self.path}/".split("/", 2)
        known = hmac.compare_digest(token.encode(), self.server.token.encode())
        if not known or self.headers.get("Host") != own:
            return None
        if self.headers.get("Origin", f"http://{own}") != f"http://{own}":
            return None
        return rest[0].rstrip("/")

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/html", policy: str | None = None) -> None:
        data = text.encode(errors="replace")
        self._head(status, kind if status is HTTPStatus.OK else "text/plain", policy, len(data))
        self.wfile.write(data)

    def _head(self, status: HTTPStatus, kind: str, policy: str | None = None, length: int | None = None) -> None:
        """Send the head of an answer; without ``length``, the answer ends with the connection."""
        self.server.clients.has_sent(self.connection)
        self.connection.settimeout(ANSWER_SECONDS)
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        if policy:
            self.send_header("Content-Security-Policy", policy)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a line would have the token."""


class ClientConnections:
    """At most ``most`` open connections. Those that have not sent their request yet make room for new ones."""

    def __init__(self, most: int):
        self._most = most
        self._changing = threading.Lock()
        self._open: dict[socket.socket, bool] = {}
        """Whether the request was received whole, by connection; the oldest first."""

    def add(self, connection: socket.socket) -> bool:
        """Return whether there is room for ``connection``, which is then counted."""
        with self._changing:
            if len(self._open) >= self._most:
                oldest = next((unsent for unsent, sent in self._open.items() if not sent), None)
                if oldest is None:
                    return False
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it
            self._open[connection] = False
            return True

    def has_sent(self, connection: socket.socket) -> None:
        """Note that the request of ``connection`` was received whole."""
        with self._changing:
            if connection in self._open:
                self._open[connection] = True

    def remove(self, connection: socket.socket) -> None:
        """Make room: ``connection`` is closed."""
        with self._changing:
            self._open.pop(connection, None)


class TimedReader(io.RawIOBase):
    """The bytes of ``connection``, all of which have to come within ``seconds``. Later ones raise `TimeoutError`."""

    def __init__(self, connection: socket.socket, seconds: float):
        self._connection = connection
        self._end = time.monotonic() + seconds

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into ``buffer`` what has come, and wait for it."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request did not end in time")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)
