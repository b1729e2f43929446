"""Connections of clients that may be slow, silent or many."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 256
"""The most open connections. The oldest one that has not sent its request makes room for a new one."""
REQUEST_SECONDS, ANSWER_SECONDS = 20, 30
"""The time in which a client sends a whole request, and reads what is ready of the answer."""


class TimedConnection(H11Protocol):
    """HTTP/1.1 with a clock on whatever a client does.

    A client has `REQUEST_SECONDS` to send a whole request, headers and body, counted from the connection or from the
    previous answer. It has `ANSWER_SECONDS` to make room in a full write buffer, and to read the rest of an answer that
    is complete. The connection is closed when the time is over.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._clock: asyncio.TimerHandle | None = None
        self._since = self.loop.time()
        """When the client began to send, or could begin to send, its current request."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the clock, and close the oldest silent connection if there are too many."""
        super().connection_made(transport)
        self._restart(REQUEST_SECONDS)
        timed = [connection for connection in self.connections if isinstance(connection, TimedConnection)]
        if len(timed) > MAX_CONNECTIONS:
            oldest = min(
                (connection for connection in timed if not connection._is_answered),
                key=lambda connection: connection._since,
            )  # or this one
            self.connections.discard(oldest)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Close the connection if ``data`` is not HTTP, and can no longer be answered."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            self.transport.abort()

    def handle_events(self) -> None:
        """Stop the clock when the request was received whole."""
        super().handle_events()
        if self._is_answered and not self.flow.write_paused:
            self._stop()

    def on_response_complete(self) -> None:
        """Restart the clock, for the rest of the answer or the next request."""
        self._since = self.loop.time()
        self._restart(ANSWER_SECONDS if self.transport.get_write_buffer_size() else REQUEST_SECONDS)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Start the clock: the client does not read."""
        super().pause_writing()
        self._restart(ANSWER_SECONDS)

    def resume_writing(self) -> None:
        """Stop the clock: the client reads."""
        super().resume_writing()
        if self._is_answered:
            self._stop()

    @property
    def _is_answered(self) -> bool:
        """Whether the request was received whole, and the answer is not complete."""
        cycle = self.cycle
        if cycle is None or self.transport.is_closing():
            return False
        return not cycle.more_body and not cycle.response_complete

    def _restart(self, seconds: float) -> None:
        self._stop()
        self._clock = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


def server_config(app: ASGIApp) -> uvicorn.Config:
    """Return the configuration of a server for ``app`` whose clients are not trusted."""
    return uvicorn.Config(
        app,
        http=TimedConnection,
        ws="none",
        log_level="error",  # a client cannot fill the log
        limit_concurrency=2 * MAX_CONNECTIONS,  # requests whose client is gone count
        timeout_graceful_shutdown=5,
    )
