"""Read JSON bodies of HTTP requests, in bounded memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request

from fx_importer.frontend.torch_patches import without_collections
from fx_importer.llm.serving.requests import RequestError, shortened

MAX_BODY = 4 * 2**20
"""The most bytes of a body, for models with a long context."""
SMALL_BODY = 64 * 2**10
"""The size up to which a body is always read, in bytes."""
BYTES_PER_TOKEN = 32
"""Bytes of a body for each token of the context, in addition to `SMALL_BODY`."""
LARGE_BODIES = 4
"""The most bodies of more than `SMALL_BODY` bytes in memory at a time."""


class Bodies:
    """Reads the bodies of requests on one event loop. Only a few large ones are in memory at a time.

    Args:
        context: the context of the model, in tokens.
    """

    def __init__(self, context: int):
        self.most = min(SMALL_BODY + BYTES_PER_TOKEN * context, MAX_BODY)
        """The most bytes of a body."""
        self._large = 0

    @contextlib.asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the body of ``request``, which counts as in memory until the block ends.

        Raises `RequestError` if the media type is not JSON, or the body is too large, now or always. Browsers let pages
        of other sites send some other media types.
        """
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != "application/json":
            raise RequestError(f"the content type '{shortened(media)}': accepted is 'application/json'", status=415)
        body, large = bytearray(), False
        try:
            async for part in request.stream():
                body += part
                if len(body) > self.most:
                    raise RequestError(f"the body is larger than {self.most} bytes", status=413)
                if len(body) > SMALL_BODY and not large:
                    if self._large == LARGE_BODIES:
                        message = f"{LARGE_BODIES} requests of more than {SMALL_BODY} bytes are read: try again later"
                        raise RequestError(message, status=429, code="rate_limit_exceeded")
                    self._large += 1
                    large = True
            yield bytes(body)
        finally:
            self._large -= large


def parsed(body: bytes) -> dict[str, Any]:
    """Return the JSON object in ``body``. Raises `RequestError` if it is not one."""
    try:
        with without_collections():  # millions of small lists would have all objects of the process collected, often
            value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError("the body is accepted as a JSON object")
    return value
