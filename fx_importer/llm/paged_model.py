"""A language model with a paged cache. A scheduler batches its prompts."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from fx_importer import Caller, UsageError
from fx_importer.llm.cached_sequence import CachedSequence, filled_draft
from fx_importer.llm.language_model import LanguageModel
from fx_importer.llm.paged_cache import SCRATCH
from fx_importer.llm.sampling import Sampling
from fx_importer.llm.scheduler import Scheduler
from fx_importer.llm.settings import MOST, Settings
from fx_importer.output_types import OutputType
from fx_importer.targets import target_for


class PagedModel(LanguageModel):
    """A model with a paged cache. `Scheduler` runs any number of prompts in its batch."""

    def __init__(self, caller: Caller, settings: Settings, tokenizer: Any):
        super().__init__(caller, settings, tokenizer)
        if settings.page_size is None or settings.pages is None:
            raise UsageError("the folder has no cache in pages: import the model with cache='paged'")
        self.page_size, self.pages = settings.page_size, settings.pages
        self.free_pages = [page for page in reversed(range(self.pages)) if page != SCRATCH]
        """The pages that no sequence uses, except for `SCRATCH`."""
        self.most = settings.chunk or MOST
        """The most prompt tokens in one call."""
        self.vocabulary = caller.manifest.functions["decode"].results[-1].type.sizes[-1]
        """The vocabulary size of the logits."""
        self._compiles_sizes = target_for(OutputType.get(caller.manifest.output_type)).specializes_sizes
        """Whether engines recompile the functions for each width of the page table."""

    def pages_for(self, positions: int) -> int:
        """Return the number of pages needed for ``positions`` positions."""
        return -(-positions // self.page_size)

    def take_pages(self, number: int) -> list[int]:
        """Take pages from `free_pages`; callers put them back there. Raises `UsageError` if there are too few."""
        if number > len(self.free_pages):
            raise UsageError(f"{number} pages are needed, and {len(self.free_pages)} of {self.pages - 1} are free")
        return [self.free_pages.pop() for _ in range(number)]

    def prefill(self, tokens: Sequence[int], pages: Sequence[int], length: int) -> torch.Tensor:
        """Append at most `most` tokens to a sequence of ``length`` positions. Return the logits, [1, vocabulary]."""
        start = time.perf_counter()
        logits = self._append("prefill", tokens, pages, length)
        self.seconds_of_prefill += time.perf_counter() - start
        return logits

    def decode(self, rows: Mapping[int, tuple[int, Sequence[int], int]]) -> torch.Tensor:
        """Append one token to each of several sequences, and return the logits after it, [batch, vocabulary].

        Args:
            rows: the token, pages and number of positions of each sequence, keyed by its row in the batch.
        """
        start = time.perf_counter()
        nothing: tuple[int, Sequence[int], int] = (0, (), 0)
        requests = [rows.get(row, nothing) for row in range(self.settings.batch)]
        table = self._table([pages for _, pages, _ in requests], max(length for *_, length in requests) + 1)
        tokens = torch.tensor([[token] for token, *_ in requests])
        logits = self.caller["decode"](tokens, table, torch.tensor([length for *_, length in requests]))
        self.seconds_of_decode += time.perf_counter() - start
        self.steps += 1
        return logits

    def verify(self, tokens: Sequence[int], pages: Sequence[int], length: int) -> torch.Tensor:
        """Append draft tokens to a sequence of ``length`` positions. Return their logits, [n, vocabulary]."""
        others = self.settings.batch - 1  # unused rows
        table = self._table([pages, *[()] * others], length + len(tokens))
        rows = torch.tensor([tokens, *[[0] * len(tokens)] * others])
        return self.caller["verify"](rows, table, torch.tensor([length, *[0] * others]))[0]

    def _append(
        self, function: str, tokens: Sequence[int], pages: Sequence[int], length: int, *others: Sequence[int]
    ) -> torch.Tensor:
        """Call a function on a part of one sequence, padded to the chunk size."""
        size = self.settings.chunk or len(tokens)
        rows = [torch.tensor([[*other, *[0] * (size - len(other))]]) for other in (tokens, *others)]
        table = self._table([pages], length + size)
        return self.caller[function](rows[0], table, torch.tensor([length]), torch.tensor(len(tokens) - 1), *rows[1:])

    def _table(self, rows: Sequence[Sequence[int]], positions: int) -> torch.Tensor:
        """Return the page table for ``positions`` positions per sequence, int64 [B, P]."""
        width = self.pages_for(positions)
        if self._compiles_sizes:
            width = min(1 << (width - 1).bit_length(), self.settings.widest_table)
        return torch.tensor([[*pages[:width], *[SCRATCH] * (width - len(pages))] for pages in rows])

    def tokens(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, sampling: Sampling | None = None, seed: int = 0
    ) -> Iterator[list[int]]:
        """Yield the next token of each prompt, step by step, until one of the prompts has no more."""
        columns: list[list[int]] = []
        for number, token in self._generated(prompts, max_new_tokens, sampling or Sampling(), seed, ()):
            free = next((column for column in columns if column[number] < 0), None)
            if free is None:
                columns.append(free := [-1] * len(prompts))
            free[number] = token
            while columns and -1 not in columns[0]:
                yield columns.pop(0)

    def sequence(self) -> CachedSequence:
        """Return a sequence with its own pages, allocated as it grows."""
        return _OwnPages(self)

    def _generated(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        sampling: Sampling,
        seed: int,
        done: Collection[int],
    ) -> Iterator[tuple[int, int]]:
        self.seconds_of_prefill, self.seconds_of_decode, self.steps = 0.0, 0.0, 0
        scheduler = Scheduler(self)
        requests = [
            scheduler.add(prompt, max_new_tokens=max_new_tokens, sampling=sampling, seed=seed + number)
            for number, prompt in enumerate(prompts)
        ]
        try:
            while not scheduler.is_idle:
                for request, token in scheduler.step():
                    number = requests.index(request)
                    if number not in done:
                        yield number, token
                    if number in done:
                        scheduler.cancel(request)
        finally:  # also if the caller abandons the iterator
            for request in requests:
                scheduler.cancel(request)

    def _log_probabilities(self, rows: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        if any(not 1 < len(row) <= self.settings.context for row in rows):
            lengths = ", ".join(str(len(row)) for row in rows)
            raise UsageError(f"texts of {lengths} tokens: accepted is 2 to {self.settings.context}, the context")
        return [self._log_probabilities_of(row) for row in rows]

    def _log_probabilities_of(self, row: Sequence[int]) -> tuple[float, ...]:
        pages = self.take_pages(self.pages_for(len(row)))
        targets, probabilities = [*row[1:], 0], []
        try:
            for start in range(0, len(row), self.most):
                tokens = row[start : start + self.most]
                part = self._append("score", tokens, pages, start, targets[start : start + self.most])
                probabilities += part[0, : len(tokens)].tolist()
        finally:
            self.free_pages += pages
        return tuple(probabilities[:-1])


class _OwnPages(CachedSequence):
    def __init__(self, model: PagedModel):
        super().__init__()
        self._model = model
        self._pages: list[int] = []

    def append(self, tokens: Sequence[int]) -> torch.Tensor:
        model, logits = self._model, torch.empty(0)
        self._take_pages(len(tokens))
        for start in range(0, len(tokens), model.most):
            part = tokens[start : start + model.most]
            if len(tokens) == 1:
                logits = model.decode({0: (tokens[0], self._pages, len(self.tokens))})[:1]
            else:
                logits = model.prefill(part, self._pages, len(self.tokens))
            self.tokens += part
        return logits

    def verify(self, tokens: Sequence[int]) -> torch.Tensor:
        filled = filled_draft(tokens, self._model.settings.draft)
        self._take_pages(len(tokens))
        logits = self._model.verify(filled, self._pages, len(self.tokens))
        self.tokens += tokens
        return logits[: len(tokens)]

    def _take_pages(self, tokens: int) -> None:
        pages = self._model.pages_for(len(self.tokens) + tokens)
        self._pages += self._model.take_pages(max(0, pages - len(self._pages)))

    def cut(self, length: int) -> None:
        self.tokens = self.tokens[:length]
        kept = self._model.pages_for(length)
        self._model.free_pages += self._pages[kept:]
        self._pages = self._pages[:kept]

    def close(self) -> None:
        self.cut(0)
