"""Read JSON bodies of HTTP requests."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from fx_importer.llm.serving.requests import RequestError

MAX_BODY = 16 * 2**20
"""The maximum size of a body, in bytes."""


async def read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body.

    Raises `RequestError` if the media type is not JSON, the body is too large, or it is not a JSON object. Browsers let
    pages of other sites send some other media types.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise RequestError(f"the content type {media!r}: accepted is 'application/json'", status=415)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise RequestError(f"the body is larger than {MAX_BODY} bytes", status=413)
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise RequestError("the body is accepted as an object of JSON")
    return found
