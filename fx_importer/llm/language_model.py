"""What an imported language model does on an engine: text from prompts, and how likely texts are."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fx_importer import Caller, UsageError
from fx_importer.llm.adapter import AdaptedCaller, adapter_matrices, no_adapter
from fx_importer.llm.cached_sequence import CachedSequence
from fx_importer.llm.sampling import Sampling
from fx_importer.llm.settings import Settings
from fx_importer.llm.text_stream import Completion, TextStream


@dataclass(frozen=True)
class Score:
    """How likely a model finds a text."""

    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    """The natural logarithm of the probability of each token but the first, after those before it."""

    @property
    def perplexity(self) -> float:
        """The reciprocal of the geometric mean of the probabilities."""
        return math.exp(-sum(self.log_probabilities) / len(self.log_probabilities))


class LanguageModel(ABC):
    """An imported model, loaded on an engine: `load` returns one for the form of its cache."""

    def __init__(self, caller: Caller, settings: Settings, tokenizer: Any):
        self.caller = caller
        self.settings = settings
        self.tokenizer = tokenizer
        self.seconds_of_prefill = 0.0
        self.seconds_of_decode = 0.0
        self.steps = 0
        """The calls of ``decode`` since the last call of `generate`, and the time that they took."""

    def use_adapter(self, folder: str | os.PathLike[str] | None) -> None:
        """Let the next calls use the adapter of peft in ``folder``, or none. Nothing is compiled anew.

        Cached keys and values stay: sequences that are in the cache, as those of a `Chat`, were computed with the
        adapter before.

        Raises:
            UsageError: if the module takes no adapter, or not this one.
        """
        form = self.settings.adapter
        if form is None or not isinstance(self.caller, AdaptedCaller):
            raise UsageError("the module takes no adapter: import the model with adapter_rank, or merge it with lora")
        self.caller.adapter = no_adapter(form) if folder is None else adapter_matrices(form, Path(folder))

    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: Sequence[str] = (),
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[Completion]:
        """Continue each prompt.

        Args:
            prompts: with a static cache, at most as many as the batch of the module.
            max_new_tokens: the number of tokens, if nothing ends a sequence before.
            temperature: 0 takes the most likely token, more draws among all.
            top_k: draw among that many.
            top_p: draw among the fewest that have this probability together.
            seed: of the draws.
            stop: strings that end a sequence; they are not part of it.
            on_text: takes the number of a prompt and the text that was added to it, as it comes.

        Raises:
            UsageError: for too many prompts, an empty one, or one that is longer than the context.
        """
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        streams = [TextStream(self.tokenizer, stop) for _ in texts]
        done: set[int] = set()
        tokens = [self.tokenizer(each)["input_ids"] for each in texts]
        for number, token in self._generated(tokens, max_new_tokens, Sampling(temperature, top_k, top_p), seed, done):
            stream = streams[number]
            added = stream.end() if token in self.settings.stop_tokens else stream.add(token)
            if added and on_text is not None:
                on_text(number, added)
            if stream.done:
                done.add(number)
        for number, stream in enumerate(streams):
            if not stream.done and (added := stream.rest()) and on_text is not None:
                on_text(number, added)
        return [each.completion() for each in streams]

    def score(self, texts: str | Sequence[str]) -> list[Score]:
        """Return how likely the model finds each text. The first token of each is given.

        Raises:
            UsageError: for too many texts, one of a single token, or one that is longer than the context.
        """
        rows = [self.tokenizer(each)["input_ids"] for each in ([texts] if isinstance(texts, str) else texts)]
        if any(len(each) == 1 for each in rows):
            raise UsageError("a text of one token: the model says how likely a token is after others")
        return [Score(tuple(row), found) for row, found in zip(rows, self._log_probabilities(rows), strict=True)]

    @abstractmethod
    def tokens(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, sampling: Sampling | None = None, seed: int = 0
    ) -> Iterator[list[int]]:
        """Return the next token of each prompt, given as tokens, then the ones after those; at most the context.

        Raises:
            UsageError: as `generate` does.
        """

    @abstractmethod
    def sequence(self) -> CachedSequence:
        """Return an empty sequence in the cache, for `Chat`."""

    @abstractmethod
    def _generated(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        sampling: Sampling,
        seed: int,
        done: Collection[int],
    ) -> Iterator[tuple[int, int]]:
        """Return new tokens with the numbers of their prompts, of those that are not in ``done`` by then."""

    @abstractmethod
    def _log_probabilities(self, rows: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """Return the logarithm of the probability of each token but the first."""
