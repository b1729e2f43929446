"""An imported encoder-decoder: generates text for sources, which its encoder reads once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from fx_importer import UsageError
from fx_importer.llm.batch_model import BatchModel
from fx_importer.llm.cached_sequence import CachedSequence
from fx_importer.llm.language_model import Score
from fx_importer.llm.sampling import Sampling
from fx_importer.llm.settings import SourceForm
from fx_importer.llm.text_stream import Completion

Prompts = str | torch.Tensor | Sequence[str] | Sequence[torch.Tensor]


class SourceModel(BatchModel):
    """A model whose prompts are sources: texts, or features such as spectrograms. The decoder starts anew for each."""

    _chosen_start: tuple[int, ...] | None = None

    @property
    def form(self) -> SourceForm:
        """How the module takes sources."""
        assert self.settings.source is not None
        return self.settings.source

    def encode(self, sources: Sequence[Any]) -> torch.Tensor:
        """Encode sources, for the following calls of ``prefill``, ``decode`` and ``score``.

        Args:
            sources: up to the module's batch size: lists of tokens, or tensors of features of the encoder's shape.

        Returns:
            The results of the encoder, [B, S, hidden]. Rows after those of ``sources`` repeat the first.

        Raises:
            UsageError: if there are too many sources, or one is empty, too long, or of another shape.
        """
        batch = self.settings.batch
        if not 1 <= len(sources) <= batch:
            raise UsageError(f"{len(sources)} sources: the module was imported for 1 to {batch}, its batch")
        rows = [*sources, *[sources[0]] * (batch - len(sources))]  # extra rows are computed and dropped
        if self.form.positions is None:
            return self.caller["encode"](self._features(rows))
        if any(isinstance(row, torch.Tensor) for row in rows):
            raise UsageError("features as a source: the encoder reads tokens, so accepted are texts")
        lengths = [len(row) for row in rows]
        if not all(lengths) or max(lengths) > self.form.positions:
            raise UsageError(
                f"sources of {', '.join(map(str, lengths[: len(sources)]))} tokens: accepted is 1 to "
                f"{self.form.positions}, the positions of sources that the module was imported with"
            )
        size = self.form.positions if self.form.is_padded else max(lengths)
        tokens = [[*row, *[self.form.pad_token] * (size - len(row))] for row in rows]
        return self.caller["encode"](torch.tensor(tokens), torch.tensor(lengths))

    def generate(self, prompts: Any, *, start: str | Sequence[int] | None = None, **options: Any) -> list[Completion]:
        """Generate a text for each source, as `LanguageModel.generate` does.

        Args:
            prompts: a text or features, or several.
            start: the text or tokens that the decoder starts with; by default those of the model's configuration.
            options: see `LanguageModel.generate`.

        Raises:
            UsageError: as `LanguageModel.generate` and `encode` do, and without ``start`` if the model has none.
        """
        self._chosen_start = self._start(start)
        try:
            return super().generate([prompts] if isinstance(prompts, str) else list(prompts), **options)
        finally:
            self._chosen_start = None

    def score(self, texts: str | Sequence[str], *, sources: Any = None) -> list[Score]:
        """Return the log-probabilities of the tokens of each text, each after its source.

        Args:
            texts: the texts that the decoder would generate.
            sources: a source of each text: texts or features.

        Raises:
            UsageError: if a text has no source, and as `LanguageModel.score` and `encode` do.
        """
        listed = [texts] if isinstance(texts, str) else list(texts)
        sources_given = [sources] if isinstance(sources, str) else list(() if sources is None else sources)
        if len(sources_given) != len(listed):
            raise UsageError(f"{len(listed)} texts and {len(sources_given)} sources: pass the source of each text")
        start = self._start(None)
        targets = [self.tokenizer(text_target=text)["input_ids"] for text in listed]
        self.encode([self._inputs(source) for source in sources_given])
        rows = self._log_probabilities([[*start, *target] for target in targets])
        return [
            Score((start[-1], *target), probabilities[len(start) - 1 :])
            for target, probabilities in zip(targets, rows, strict=True)
        ]

    def tokens(
        self,
        prompts: Sequence[Any],
        max_new_tokens: int,
        sampling: Sampling | None = None,
        seed: int = 0,
        start: Sequence[int] | None = None,
    ) -> Iterator[list[int]]:
        """Yield the next token for each source, step by step. `encode` describes the sources, `generate` ``start``."""
        first = self._chosen_start or self._start(start)
        forced = [] if self.form.forced is None or len(first) > 1 else [self.form.forced]
        self.encode(prompts)
        if forced and max_new_tokens > 0:
            yield forced * len(prompts)
        rest, last = max(max_new_tokens - len(forced), 0), self.form.forced_last
        steps = super().tokens([[*first, *forced]] * len(prompts), rest, sampling, seed)
        for number, tokens in enumerate(steps, start=1):
            yield tokens if last is None or number < rest else [last] * len(prompts)

    def sequence(self) -> CachedSequence:
        """Raise `UsageError`: a decoder starts anew for each source, and has no sequence to continue."""
        raise UsageError(
            "an encoder-decoder answers a source, and continues no conversation: pass the source to generate"
        )

    def _start(self, start: str | Sequence[int] | None) -> tuple[int, ...]:
        """Return the tokens that the decoder starts with."""
        if isinstance(start, str):
            tokens: tuple[int, ...] = tuple(self.tokenizer(start, add_special_tokens=False)["input_ids"])
        else:
            tokens = self.form.start if start is None else tuple(start)
        if not tokens:
            raise UsageError(
                "no tokens to start with: pass start=, as '<|startoftranscript|><|en|><|transcribe|><|notimestamps|>' "
                "for a Whisper of several languages"
            )
        return tokens

    def _inputs(self, prompt: Any) -> Any:
        return prompt if isinstance(prompt, torch.Tensor) else super()._inputs(prompt)

    def _features(self, rows: Sequence[Any]) -> torch.Tensor:
        (argument, *_) = [
            argument for argument in self.caller.manifest.functions["encode"].arguments if argument.name == "source"
        ]
        shape = list(argument.type.sizes[1:])
        for row in rows:
            if not isinstance(row, torch.Tensor) or list(row.shape) != shape:
                met = f"floats {list(row.shape)}" if isinstance(row, torch.Tensor) else "text or tokens"
                raise UsageError(f"a source is {met}: the encoder reads features, floats {shape} of each source")
        return torch.stack(list(rows)).to(getattr(torch, argument.type.dtype))

    def _call(self, name: str, *arguments: torch.Tensor) -> torch.Tensor:
        tokens, position, _padding, *others = arguments  # all rows have the same length: `tokens`
        return self.caller[name](tokens, position, *others)

    def _allowed(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        listed = {*self.form.suppressed, *(self.form.suppressed_first if step == 0 else ())}
        excluded = sorted(token for token in listed if token < logits.shape[1])
        return logits.index_fill(1, torch.tensor(excluded), -torch.inf) if excluded else logits

    def _log_probabilities(self, rows: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        longest, context = max(map(len, rows)), self.settings.context
        if longest > context:
            raise UsageError(f"texts of up to {longest} tokens: accepted is 1 to {context}, the context of the module")
        filled = [[*row, *[0] * (longest - len(row))] for row in rows]
        filled += [filled[0]] * (self.settings.batch - len(rows))
        tokens = torch.tensor(filled)
        parts = self._scores(tokens, torch.zeros(len(filled), dtype=torch.int64))
        return [tuple(parts[number, : len(row) - 1].tolist()) for number, row in enumerate(rows)]
