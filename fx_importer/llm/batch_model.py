"""A language model with a static cache, which batches several prompts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from fx_importer import UsageError
from fx_importer.llm.cached_sequence import CachedSequence, filled_draft
from fx_importer.llm.language_model import LanguageModel
from fx_importer.llm.sampling import Sampling
from fx_importer.llm.settings import MOST

_SCORED = 256
"""The number of tokens whose probabilities over the whole vocabulary are in memory at once."""


class BatchModel(LanguageModel):
    """A model with a static cache. It continues several prompts at once, up to the module's batch size."""

    def tokens(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, sampling: Sampling | None = None, seed: int = 0
    ) -> Iterator[list[int]]:
        """Yield the next token of each tokenized prompt, step by step, up to the context length.

        Raises:
            UsageError: as `generate` does.
        """
        context = self.settings.context
        tokens, padding = self._rows(prompts, "prompts")
        longest = tokens.shape[1]
        generator = torch.Generator().manual_seed(seed)
        choice = sampling or Sampling()
        start = time.perf_counter()
        logits = self._prefill(tokens, padding)
        self.seconds_of_prefill, self.seconds_of_decode, self.steps = time.perf_counter() - start, 0.0, 0
        for position in range(longest, longest + max_new_tokens):
            chosen = choice.choose(self._allowed(logits, position - longest), generator)
            yield chosen[: len(prompts)].tolist()
            if position == min(context, longest + max_new_tokens - 1):
                return
            start = time.perf_counter()
            logits = self._call("decode", chosen.unsqueeze(1), torch.tensor(position), padding)
            self.seconds_of_decode += time.perf_counter() - start
            self.steps += 1

    def _call(self, name: str, *arguments: torch.Tensor) -> torch.Tensor:
        """Call a function with tokens, their position, the padding and others."""
        return self.caller[name](*arguments)

    def _allowed(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """Return ``logits`` [B, vocabulary] with -inf for tokens that cannot be the new token number ``step``."""
        return logits

    def _generated(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        sampling: Sampling,
        seed: int,
        done: Collection[int],
    ) -> Iterator[tuple[int, int]]:
        for tokens in self.tokens(prompts, max_new_tokens, sampling, seed):
            yield from ((number, token) for number, token in enumerate(tokens) if number not in done)
            if len(done) == len(prompts):
                return

    def _log_probabilities(self, rows: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        tokens, padding = self._rows(rows, "texts")
        scores = self._scores(tokens, padding)
        return [tuple(scores[number, scores.shape[1] - len(row) + 1 :].tolist()) for number, row in enumerate(rows)]

    def _scores(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of all of ``tokens`` [B, n] but the first, [B, n - 1]."""
        parts = self._in_chunks(partial(self._call, "score"), tokens, padding, tokens.roll(-1, 1), most=_SCORED)
        return torch.cat(list(parts), 1)[:, : tokens.shape[1] - 1]

    def sequence(self) -> CachedSequence:
        """Return a sequence in the first row of the batch. Calls to `generate` and `score` end it."""
        return _FirstRow(self)

    def append(self, tokens: Sequence[int], first: int) -> torch.Tensor:
        """Append tokens to the first row from position ``first``, and return the logits [1, vocabulary] after them."""
        batch, context = self.settings.batch, self.settings.context
        padding, logits = torch.zeros(batch, dtype=torch.int64), torch.empty(0)
        chunk, start = self.settings.chunk, first
        while start < first + len(tokens):
            part = torch.tensor([tokens[start - first :][: chunk or MOST]]).expand(batch, -1)
            if chunk is not None and start + chunk > context:  # the chunk's padding does not fit
                part = part[:, :1].contiguous()
                logits = self.caller["decode"](part, torch.tensor(start), padding)
            else:
                (logits,) = self._in_chunks(self._prefill_part, part, padding, most=part.shape[1], start=start)
            start += part.shape[1]
        return logits[:1]

    def _rows(self, sequences: Sequence[Sequence[int]], what: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the left-padded batch, [B, n], and the amount of padding in each row, [B].

        Raises:
            UsageError: if there are too many sequences, or one is empty or longer than the context.
        """
        batch, context = self.settings.batch, self.settings.context
        if not 1 <= len(sequences) <= batch:
            raise UsageError(f"{len(sequences)} {what}: the module was imported for 1 to {batch}, its batch")
        longest = max(map(len, sequences))
        if not all(sequences) or longest > context:
            lengths = ", ".join(str(len(sequence)) for sequence in sequences)
            raise UsageError(
                f"{what} of {lengths} tokens: accepted is 1 to {context}, the context that the module was imported with"
            )
        rows = [*sequences, *[sequences[0]] * (batch - len(sequences))]  # extra rows are computed and dropped
        padding = [longest - len(row) for row in rows]
        tokens = [[0] * zeros + list(row) for zeros, row in zip(padding, rows, strict=True)]
        return torch.tensor(tokens), torch.tensor(padding)

    def _prefill(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Return the logits after the last of ``tokens`` [B, n]."""
        *_, logits = self._in_chunks(self._prefill_part, tokens, padding, most=MOST)
        return logits

    def _prefill_part(self, *arguments: torch.Tensor) -> torch.Tensor:
        """Call ``prefill``."""
        return self._call("prefill", *arguments)

    def _in_chunks(
        self,
        function: Callable[..., Any],
        tokens: torch.Tensor,
        padding: torch.Tensor,
        *others: torch.Tensor,
        most: int,
        start: int = 0,
    ) -> Iterator[torch.Tensor]:
        """Call ``function`` on chunks of ``tokens`` and ``others`` [B, n, …], of the module's chunk size or ``most``.

        The first token has the position ``start``. Chunks of a fixed size are padded at the end.
        """
        length, chunk = tokens.shape[1], self.settings.chunk
        size = chunk or most
        for done in range(0, length, size):
            count = min(size, length - done)
            parts = [other[:, done : done + count] for other in (tokens, *others)]
            first, *rest = [_filled(part, chunk - count if chunk else 0) for part in parts]
            yield function(first, torch.tensor(start + done), padding, torch.tensor(count - 1), *rest)


def _filled(rows: torch.Tensor, more: int) -> torch.Tensor:
    """Return ``rows`` [B, n, …] with ``more`` zeros appended."""
    return torch.nn.functional.pad(rows, [0, 0] * (rows.dim() - 2) + [0, more]).contiguous()


class _FirstRow(CachedSequence):
    def __init__(self, model: BatchModel):
        super().__init__()
        self._model = model
        state = model.caller.manifest.state.items()
        self._can_shrink = all(
            name.endswith((".key", ".value")) and entry.type.sizes[2] >= model.settings.context for name, entry in state
        )

    def append(self, tokens: Sequence[int]) -> torch.Tensor:
        logits = self._model.append(tokens, len(self.tokens))
        self.tokens += tokens
        return logits

    def verify(self, tokens: Sequence[int]) -> torch.Tensor:
        settings, first = self._model.settings, len(self.tokens)
        filled = filled_draft(tokens, settings.draft)
        if first + len(filled) > settings.context:  # the padding does not fit
            return torch.cat([self.append([token]) for token in tokens])
        padding = torch.zeros(settings.batch, dtype=torch.int64)
        rows = torch.tensor([filled]).repeat(settings.batch, 1)
        logits = self._model.caller["verify"](rows, torch.tensor(first), padding)
        self.tokens += tokens
        return logits[0, : len(tokens)]

    def cut(self, length: int) -> None:
        if length < len(self.tokens):
            # Later tokens overwrote the slots of rings, and states.
            self.tokens = self.tokens[:length] if self._can_shrink else []

    def close(self) -> None:
        self.tokens = []
