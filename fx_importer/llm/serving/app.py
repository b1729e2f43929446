"""The server: OpenAI API routes on top of a batcher."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fx_importer.errors import UsageError
from fx_importer.llm.chat import chat_tokens
from fx_importer.llm.paged_model import PagedModel
from fx_importer.llm.serving import answers
from fx_importer.llm.serving.batcher import Batcher, Disconnected, Generation
from fx_importer.llm.serving.bodies import read_body
from fx_importer.llm.serving.requests import RequestError, RequestOptions, messages_of, prompts_of

MAX_WAITING = 256
"""The most sequences that may wait for a slot."""
_DEFAULT_MAX_TOKENS = 16
"""The default ``max_tokens`` of a completion. A chat defaults to the rest of the context."""


class Server:
    """Serves requests for one model.

    Args:
        model: a model returned by `load`, imported with ``cache="paged"``.
        name: the model's name in requests.
    """

    def __init__(self, model: PagedModel, name: str):
        self.model, self.name = model, name
        self.batcher = Batcher(model)
        self.created = int(time.time())

    def app(self, hosts: Sequence[str] = ("*",)) -> Starlette:
        """Return the ASGI application. It only accepts requests to ``hosts``: others may come from web pages."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/v1/models", self.models),
                Route("/v1/models/{name:path}", self.one_model),
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
            exception_handlers=answers.ERRORS,
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        self.batcher.close()

    async def health(self, _: Request) -> Response:
        """Return the number of running and waiting sequences and of free pages."""
        scheduler = self.batcher.scheduler
        return JSONResponse(
            {
                "status": "ok",
                "running": sum(each is not None for each in scheduler.slots),
                "waiting": len(scheduler.waiting),
                "free_pages": len(self.model.free_pages),
                "pages": self.model.pages - 1,
            }
        )

    async def models(self, _: Request) -> Response:
        """List the model."""
        return JSONResponse({"object": "list", "data": [self._described()]})

    async def one_model(self, request: Request) -> Response:
        """Describe the model."""
        self._check_model(request.path_params["name"])
        return JSONResponse(self._described())

    def _described(self) -> dict[str, Any]:
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "fx-importer"}

    async def completions(self, request: Request) -> Response:
        """Complete prompts."""
        body = await read_body(request)
        options = RequestOptions.read(body, "prompt")
        self._check_model(options.model)
        tokens = [
            self.model.tokenizer(each)["input_ids"] if isinstance(each, str) else each for each in prompts_of(body)
        ]
        generation = self._generation(tokens, options, options.max_tokens or _DEFAULT_MAX_TOKENS, "prompt")
        return await self._answer(request, generation, options, "text_completion", answers.text, answers.text)

    async def chat(self, request: Request) -> Response:
        """Answer a conversation, in the format of the tokenizer's chat template."""
        body = await read_body(request)
        options = RequestOptions.read(body, "messages", "max_completion_tokens")
        self._check_model(options.model)
        try:
            tokens = chat_tokens(self.model.tokenizer, messages_of(body))
        except UsageError as error:
            raise RequestError(str(error), "messages") from None
        most = options.max_tokens or self.model.settings.context
        generation = self._generation([tokens], options, most, "messages")
        return await self._answer(request, generation, options, "chat.completion", answers.message, answers.delta)

    def _check_model(self, name: str) -> None:
        if name != self.name:
            message = f"the model '{name}' does not exist: there is '{self.name}'"
            raise RequestError(message, "model", status=404, code="model_not_found")

    def _generation(
        self, prompts: Sequence[Sequence[int]], options: RequestOptions, most: int, param: str
    ) -> Generation:
        scheduler = self.batcher.scheduler
        count = len(prompts) * options.choices
        if count + len(scheduler.waiting) > MAX_WAITING:
            message = f"{len(scheduler.waiting)} sequences wait, and at most {MAX_WAITING} may: try again later"
            raise RequestError(message, status=429, code="rate_limit_exceeded")
        first = secrets.randbits(62) if options.seed is None else options.seed
        try:
            requests = [
                scheduler.request(each, max_new_tokens=most, sampling=options.sampling, seed=first + choice)
                for each in prompts
                for choice in range(options.choices)
            ]
        except UsageError as error:
            too_long = any(len(each) > self.model.settings.context for each in prompts)
            code = "context_length_exceeded" if too_long else None
            raise RequestError(str(error), param, code=code) from None
        return Generation(self.batcher, requests, options.stop)

    async def _answer(
        self,
        request: Request,
        generation: Generation,
        options: RequestOptions,
        kind: str,
        whole: Callable[..., dict[str, Any]],
        part: Callable[..., dict[str, Any]],
    ) -> Response:
        head = {
            "id": f"{'chatcmpl' if kind.startswith('chat') else 'cmpl'}-{secrets.token_hex(12)}",
            "object": kind,
            "created": int(time.time()),
            "model": self.name,
        }
        if options.stream:
            if kind.startswith("chat"):
                head["object"] += ".chunk"
            events = answers.events(generation, head, part, options.include_usage)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        texts, finished = [""] * len(generation.requests), [""] * len(generation.requests)
        try:
            async with answers.cancelled_with(request, generation):
                while (piece := await generation.next()) is not None:
                    texts[piece.index] += piece.text
                    finished[piece.index] = piece.finished or ""
        except Disconnected:
            return Response(status_code=499)  # the client is gone
        choices = [whole(index, *each) for index, each in enumerate(zip(texts, finished, strict=True))]
        return JSONResponse({**head, "choices": choices, "usage": generation.usage})
