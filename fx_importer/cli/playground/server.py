"""The server of the playground: on loopback, for those who know its token."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections import OrderedDict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fx_importer.cli.playground.compilation import compile_source
from fx_importer.cli.playground.page import playground_page
from fx_importer.errors import UsageError
from fx_importer.options import Limits
from fx_importer.output_types import OutputType

LOOPBACK = "127.0.0.1"
_LARGEST = 1_000_000
"""Bytes of a request."""
_KEPT = 4
"""Explorers that can still be opened; the last ones."""


class Playground(ThreadingHTTPServer):
    """A server that compiles one program at a time. Nothing listens before it is made."""

    daemon_threads = True

    def __init__(self, port: int, output_type: OutputType, limits: Limits):
        """Listen on ``port``, 0 for a free one.

        Raises:
            UsageError: if the port is not free.
        """
        self.token = secrets.token_urlsafe(24)
        self.output_type, self.limits = output_type, limits
        self.compiling = threading.Lock()
        self.pages: OrderedDict[str, str] = OrderedDict()
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(f"cannot listen on {LOOPBACK}:{port}: {error}") from None

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def keep(self, page: str) -> str:
        """Return the name by which ``page`` can be opened."""
        name = secrets.token_urlsafe(8)
        self.pages[name] = page
        while len(self.pages) > _KEPT:
            self.pages.popitem(last=False)
        return name


class _Handler(BaseHTTPRequestHandler):
    server: Playground  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version, sys_version = "fx-importer", ""

    def do_GET(self) -> None:
        path = self._path()
        if path == "":
            page, policy = playground_page(self.server.output_type)
            self._answer(HTTPStatus.OK, page, policy=policy)
        elif path is not None and (page := self.server.pages.get(path)) is not None:
            self._answer(HTTPStatus.OK, page)  # its policy is in it
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
        except (ValueError, KeyError, TypeError, UsageError):
            self._answer(HTTPStatus.BAD_REQUEST, "a program and an output type are needed")
            return
        with self.server.compiling:
            outcome = compile_source(source, output_type.value, self.server.limits)
            name = None if outcome.page is None else self.server.keep(outcome.page)
        self._answer(HTTPStatus.OK, json.dumps({"message": outcome.message, "page": name}), "application/json")

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
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind if status is HTTPStatus.OK else 'text/plain'}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        if policy:
            self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a line would have the token."""
