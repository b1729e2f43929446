"""Continuous batching: sequences of different lengths share the decode steps of a model with a paged cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from fx_importer.errors import UsageError
from fx_importer.llm.sampling import LogitsError, Sampling

if TYPE_CHECKING:
    from fx_importer.llm.paged_model import PagedModel


@dataclass(eq=False)
class Request:
    """A sequence: its prompt, its sampling options and its progress."""

    prompt: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling
    generator: torch.Generator
    tokens: list[int] = field(default_factory=list)
    """The new tokens so far."""
    done: bool = False
    """Whether the sequence is complete, cancelled or failed. Its pages are then free."""
    error: LogitsError | None = None
    """Why no token could be chosen; other sequences continue."""
    pages: list[int] = field(default_factory=list)
    cached: int = 0
    """The number of the sequence's positions in the cache."""

    @property
    def in_prefill(self) -> bool:
        """Whether part of the prompt is not in the cache yet."""
        return self.cached < len(self.prompt)


class Scheduler:
    """Continues sequences in shared steps, while requests arrive and end. It is not thread-safe.

    A request waits for a free batch slot and for enough pages for all of its tokens, so an admitted request can always
    finish. Requests are admitted in order. Each request has its own random generator, so its tokens do not depend on
    other requests.

    Args:
        model: a model returned by `load`, imported with ``cache="paged"``.
    """

    def __init__(self, model: PagedModel):
        self.model = model
        self.waiting: deque[Request] = deque()
        self.slots: list[Request | None] = [None] * model.settings.batch
        """The request in each row of ``decode``."""

    def add(
        self, prompt: Sequence[int], *, max_new_tokens: int = 128, sampling: Sampling | None = None, seed: int = 0
    ) -> Request:
        """Create a request as `request` does, and queue it. `step` returns its tokens."""
        request = self.request(prompt, max_new_tokens=max_new_tokens, sampling=sampling, seed=seed)
        self.enqueue(request)
        return request

    def request(
        self, prompt: Sequence[int], *, max_new_tokens: int = 128, sampling: Sampling | None = None, seed: int = 0
    ) -> Request:
        """Create a request for at most ``max_new_tokens``, capped to the context. Any thread may call this.

        Raises:
            UsageError: if the prompt is empty, longer than the context or has tokens outside the vocabulary, or if the
                pool does not have enough pages.
        """
        context, vocabulary = self.model.settings.context, self.model.vocabulary
        if not 1 <= len(prompt) <= context:
            raise UsageError(
                f"a prompt of {len(prompt)} tokens: accepted is 1 to {context}, the context that the module was "
                "imported with"
            )
        if not 0 <= min(prompt) <= max(prompt) < vocabulary:
            raise UsageError(
                f"a prompt with the token {min(prompt, key=lambda token: 0 <= token < vocabulary)}: accepted "
                f"are 0 to {vocabulary - 1}"
            )
        if max_new_tokens < 1:
            raise UsageError(f"{max_new_tokens} new tokens: accepted is 1 or more")
        new = min(max_new_tokens, context + 1 - len(prompt))  # the last token is not cached
        generator = torch.Generator().manual_seed(seed)
        request = Request(tuple(prompt), new, sampling or Sampling(), generator)
        if (needed := self._pages_of(request)) > self.model.pages - 1:
            raise UsageError(
                f"a prompt of {len(prompt)} tokens and {new} new ones take {needed} pages, and the pool has "
                f"{self.model.pages - 1}: import the model with more pages, or ask for fewer tokens"
            )
        return request

    def enqueue(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.append(request)

    def cancel(self, request: Request) -> None:
        """End a request, and free its pages. This does nothing if it has already ended."""
        if request in self.waiting:
            self.waiting.remove(request)
        self._end(request)

    @property
    def is_idle(self) -> bool:
        """Whether no requests are waiting or running."""
        return not self.waiting and not any(self.slots)

    def step(self) -> list[tuple[Request, int]]:
        """Admit requests, prefill a chunk of one prompt, then decode one token of each sequence. Return the new tokens.

        A long prompt thus delays the other sequences by only one chunk per step. A request whose logits are NaN ends
        with an ``error``, and the others continue.
        """
        self._admit()
        chosen: list[tuple[Request, int]] = []
        running = [slot for slot in self.slots if slot is not None]
        joining = [request for request in running if request.in_prefill]
        decoding = [request for request in running if not request.in_prefill]
        if joining:
            chosen += self._prefill(joining[0])
        if decoding:
            chosen += self._decode(decoding)
        for request, _ in chosen:
            if len(request.tokens) == request.max_new_tokens:
                self._end(request)
        return chosen

    def _admit(self) -> None:
        while self.waiting and None in self.slots:
            needed = self._pages_of(self.waiting[0])
            if needed > len(self.model.free_pages):
                return
            request = self.waiting.popleft()
            request.pages = self.model.take_pages(needed)
            self.slots[self.slots.index(None)] = request

    def _prefill(self, request: Request) -> list[tuple[Request, int]]:
        part = request.prompt[request.cached : request.cached + self.model.most]
        logits = self.model.prefill(part, request.pages, request.cached)
        request.cached += len(part)
        return [] if request.in_prefill else self._chosen([request], logits)

    def _decode(self, requests: list[Request]) -> list[tuple[Request, int]]:
        rows = [self.slots.index(request) for request in requests]
        rows_ = {
            row: (request.tokens[-1], request.pages, request.cached)
            for row, request in zip(rows, requests, strict=True)
        }
        logits = self.model.decode(rows_)
        for request in requests:
            request.cached += 1
        return self._chosen(requests, logits[rows])

    def _chosen(self, requests: Sequence[Request], logits: torch.Tensor) -> list[tuple[Request, int]]:
        for number, request in enumerate(requests):
            try:
                request.tokens.append(int(request.sampling.choose(logits[number : number + 1], request.generator)))
            except LogitsError as error:
                request.error = error
                self._end(request)
        return [(request, request.tokens[-1]) for request in requests if request.error is None]

    def _pages_of(self, request: Request) -> int:
        return self.model.pages_for(len(request.prompt) + request.max_new_tokens - 1)

    def _end(self, request: Request) -> None:
        request.done = True
        self.model.free_pages += request.pages
        request.pages = []
        if request in self.slots:
            self.slots[self.slots.index(request)] = None
