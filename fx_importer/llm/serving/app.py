"""The server: OpenAI API routes on top of a batcher."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fx_importer.llm.paged_model import PagedModel
from fx_importer.llm.serving import answers
from fx_importer.llm.serving.batcher import Batcher, Disconnected, Generation, QueueFull
from fx_importer.llm.serving.bodies import SMALL_BODY, Bodies
from fx_importer.llm.serving.preparation import Preparation, Prepared
from fx_importer.llm.serving.requests import RequestError


class Server:
    """Serves requests for one model.

    Args:
        model: a model returned by `load`, imported with ``cache="paged"``.
        name: the model's name in requests.
    """

    def __init__(self, model: PagedModel, name: str):
        self.model, self.name = model, name
        self.batcher = Batcher(model)
        self.bodies = Bodies(model.settings.context)
        self.small, self.large = (Preparation(self.batcher.scheduler, name) for _ in range(2))
        """For small and for large bodies: they do not wait for each other."""
        self._threads = {
            tokenizer: ThreadPoolExecutor(1, "fx-importer-tokenizer") for tokenizer in (self.small, self.large)
        }
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
        for thread in self._threads.values():
            thread.shutdown(cancel_futures=True)
        self.batcher.close()

    async def health(self, _: Request) -> Response:
        """Return the number of running and waiting sequences and of free pages."""
        scheduler = self.batcher.scheduler
        return JSONResponse(
            {
                "status": "ok",
                "running": sum(slot is not None for slot in scheduler.slots),
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
        self.small.check_model(request.path_params["name"])
        return JSONResponse(self._described())

    def _described(self) -> dict[str, Any]:
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "fx-importer"}

    async def completions(self, request: Request) -> Response:
        """Complete prompts."""
        prepared = await self._prepared(request, Preparation.completion)
        return await self._answer(request, prepared, "text_completion", answers.text, answers.text)

    async def chat(self, request: Request) -> Response:
        """Answer a conversation, in the format of the tokenizer's chat template."""
        prepared = await self._prepared(request, Preparation.chat)
        return await self._answer(request, prepared, "chat.completion", answers.message, answers.delta)

    async def _prepared(self, request: Request, prepare: Callable[[Preparation, bytes], Prepared]) -> Prepared:
        async with self.bodies.read(request) as body:
            preparation = self.small if len(body) <= SMALL_BODY else self.large
            return await asyncio.get_running_loop().run_in_executor(
                self._threads[preparation], prepare, preparation, body
            )

    async def _answer(
        self,
        request: Request,
        prepared: Prepared,
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
        options = prepared.options
        try:
            generation = Generation(self.batcher, prepared.sequences, options.stop)
        except QueueFull as error:
            raise RequestError(f"{error}: try again later", status=429, code="rate_limit_exceeded") from None
        if options.stream:
            if kind.startswith("chat"):
                head["object"] += ".chunk"
            events = answers.events(generation, head, part, options.include_usage)
            return answers.EventStream(generation, events)
        texts, finished = [""] * len(generation.requests), [""] * len(generation.requests)
        try:
            async with answers.cancelled_with(request, generation):
                while (piece := await generation.next()) is not None:
                    texts[piece.index] += piece.text
                    finished[piece.index] = piece.finished or ""
        except Disconnected:
            return Response(status_code=answers.DISCONNECTED)
        choices = [whole(index, *item) for index, item in enumerate(zip(texts, finished, strict=True))]
        return JSONResponse({**head, "choices": choices, "usage": generation.usage})
