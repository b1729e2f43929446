"""Responses in the format of the OpenAI API: choices, server-sent events, errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from fx_importer.errors import FxImporterError
from fx_importer.llm.serving.batcher import Generation
from fx_importer.llm.serving.requests import RequestError, shortened

DISCONNECTED = 499
"""The status for clients that do not wait for the answer."""


@contextlib.asynccontextmanager
async def cancelled_with(request: Request, generation: Generation) -> AsyncIterator[None]:
    """End the generation when the client disconnects or the block ends."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        generation.abandon()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        generation.cancel()


async def events(
    generation: Generation, head: Mapping[str, Any], part: Callable[..., dict[str, Any]], include_usage: bool
) -> AsyncIterator[str]:
    """Yield server-sent events."""
    usage: dict[str, Any] = {"usage": None} if include_usage else {}
    try:
        if head["object"] == "chat.completion.chunk":
            for index in range(len(generation.requests)):
                yield _event({**head, "choices": [part(index, "", None, role="assistant")], **usage})
        while (piece := await generation.next()) is not None:
            yield _event({**head, "choices": [part(piece.index, piece.text, piece.finished)], **usage})
        if include_usage:
            yield _event({**head, "choices": [], "usage": generation.usage})
        yield "data: [DONE]\n\n"
    except FxImporterError as error:
        yield _event({"error": described_error(str(error), "server_error", None, None)})


class EventStream(StreamingResponse):
    """A response of `events`. The generation ends when the client disconnects, or does not read the events."""

    def __init__(self, generation: Generation, content: AsyncIterator[str]):
        super().__init__(content, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self.generation = generation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.generation.cancel()


def _event(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def text(index: int, text: str, finished: str | None) -> dict[str, Any]:
    """Return a choice of a completion, or a streamed part of one."""
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finished}


def message(index: int, text: str, finished: str | None) -> dict[str, Any]:
    """Return a choice of a chat completion."""
    said = {"role": "assistant", "content": text, "refusal": None}
    return {"index": index, "message": said, "logprobs": None, "finish_reason": finished}


def delta(index: int, text: str, finished: str | None, *, role: str | None = None) -> dict[str, Any]:
    """Return a streamed part of a choice of a chat completion."""
    said = {"content": text} if role is None else {"role": role, "content": text}
    return {"index": index, "delta": said, "logprobs": None, "finish_reason": finished}


def described_error(message: str, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    """Return the value of the ``error`` field in a response."""
    return {"message": message, "type": kind, "param": param, "code": code}


def _error(status: int, message: str, param: str | None = None, code: str | None = None) -> Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": described_error(message, kind, param, code)}, status)


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _error(error.status, error.message, error.param, error.code)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, f"{request.method} {shortened(request.url.path)}: {error.detail}")


def _disconnected(_: Request, __: Exception) -> Response:
    return Response(status_code=DISCONNECTED)


def _failed(request: Request, error: Exception) -> Response:
    logging.getLogger(__name__).error("%s %s", request.method, request.url.path, exc_info=error)
    return _error(500, f"{type(error).__name__}: {error}")


ERRORS: dict[Any, Callable[[Request, Exception], Response]] = {
    RequestError: _refused,
    HTTPException: _http_error,
    ClientDisconnect: _disconnected,
    FxImporterError: _failed,
    Exception: _failed,
}
"""The handler for each exception type."""
