"""An imported language model on an engine: generate text from prompts and score texts."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fx_importer import Caller, UsageError
from fx_importer.llm.cached_sequence import CachedSequence
from fx_importer.llm.checkpoints.lora_arguments import AdaptedCaller, matrices_for
from fx_importer.llm.sampling import Sampling
from fx_importer.llm.settings import Settings
from fx_importer.llm.text_stream import Completion, TextStream


@dataclass(frozen=True)
class Score:
    """The likelihood of a text under a model."""

    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    """The natural log-probability of each token except the first, given the tokens before it."""

    @property
    def perplexity(self) -> float:
        """The reciprocal of the geometric mean of the probabilities."""
        return math.exp(-sum(self.log_probabilities) / len(self.log_probabilities))


class LanguageModel(ABC):
    """An imported model, loaded on an engine. `load` returns the subclass for the kind of cache."""

    def __init__(self, caller: Caller, settings: Settings, tokenizer: Any):
        self.caller = caller
        self.settings = settings
        self.tokenizer = tokenizer
        self.seconds_of_prefill = 0.0
        self.seconds_of_decode = 0.0
        self.steps = 0
        """The number of ``decode`` calls since the last `generate` call began. ``seconds_of_decode`` is their time."""

    def use_adapter(self, folder: str | os.PathLike[str] | None) -> None:
        """Use the PEFT adapter in ``folder``, or none, for all following calls. Nothing is recompiled.

        The cache keeps its keys and values: sequences in it, for example of a `Chat`, were computed with the previous
        adapter.

        Raises:
            UsageError: if the module takes no adapter, or this adapter does not fit it.
        """
        matrices = matrices_for(self.settings.adapter, folder)
        assert isinstance(self.caller, AdaptedCaller)  # of every module with a form
        self.caller.adapter = matrices

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
            prompts: the prompts; with a static cache, at most the module's batch size.
            max_new_tokens: the maximum number of new tokens per sequence.
            temperature: 0 selects the most likely token; larger values sample.
            top_k: sample from the ``top_k`` most likely tokens.
            top_p: sample from the smallest set of tokens whose total probability is at least ``top_p``.
            seed: the random seed for sampling.
            stop: strings that end a sequence; the returned text excludes them.
            on_text: a callback that receives the index of a prompt and each new piece of its text.

        Raises:
            UsageError: if there are too many prompts, or one is empty, no text, or longer than the context.
        """
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        streams = [TextStream(self.tokenizer, stop) for _ in texts]
        done: set[int] = set()
        tokens = [self._inputs(text) for text in texts]
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
        return [stream.completion() for stream in streams]

    def score(self, texts: str | Sequence[str]) -> list[Score]:
        """Return the log-probabilities of the tokens of each text, except for its first token.

        Raises:
            UsageError: if there are too many texts, or one has a single token or is longer than the context.
        """
        rows = [self._inputs(text) for text in ([texts] if isinstance(texts, str) else texts)]
        if any(len(row) == 1 for row in rows):
            raise UsageError("a text of one token: the model says how likely a token is after others")
        return [Score(tuple(row), logs) for row, logs in zip(rows, self._log_probabilities(rows), strict=True)]

    def _inputs(self, prompt: Any) -> Any:
        """Return what `tokens` takes for one prompt of `generate`, or one text of `score`."""
        if not isinstance(prompt, str):
            raise UsageError(
                f"a prompt of type {type(prompt).__name__}: accepted are texts; `tokens` takes numbers of tokens"
            )
        return self.tokenizer(prompt)["input_ids"]

    @abstractmethod
    def tokens(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, sampling: Sampling | None = None, seed: int = 0
    ) -> Iterator[list[int]]:
        """Yield the next token of each tokenized prompt, step by step, up to the context length.

        Raises:
            UsageError: as `generate` does.
        """

    @abstractmethod
    def sequence(self) -> CachedSequence:
        """Return an empty sequence in the cache, for use by `Chat`."""

    @abstractmethod
    def _generated(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        sampling: Sampling,
        seed: int,
        done: Collection[int],
    ) -> Iterator[tuple[int, int]]:
        """Yield pairs of prompt index and new token, skipping prompts that are in ``done`` by then."""

    @abstractmethod
    def _log_probabilities(self, rows: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """Return the log-probability of each token except the first."""
