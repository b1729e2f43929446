"""Connections of clients that may be slow, silent or many."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from typing import Any


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
                oldest = next((each for each, sent in self._open.items() if not sent), None)
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
