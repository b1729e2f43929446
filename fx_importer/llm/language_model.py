"""An imported language model on an engine: text from prompts."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fx_importer import Caller, Manifest, UsageError, link, read_weights
from fx_importer.execution import IreeBackend, Loaded, backend_named
from fx_importer.llm.imported import MODULE, Settings
from fx_importer.llm.sampling import Sampling
from fx_importer.mlir.untrusted_module import read_untrusted_module
from fx_importer.weights import as_passed

ENGINES = ("jit", "iree", "xla")
_SCORED = 256
"""The number of tokens of which the probabilities of the whole vocabulary are in memory."""


@dataclass(frozen=True)
class Completion:
    """What a model wrote after a prompt."""

    text: str
    tokens: tuple[int, ...]
    """The new tokens, without the one that ended them."""
    finished: str
    """``"stop"``, at a token or a string that ends it; ``"length"``, at the number of tokens or the context."""


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


class LanguageModel:
    """An imported model, loaded on an engine. It continues several prompts at once, up to the batch of the module."""

    def __init__(self, caller: Caller, settings: Settings, tokenizer: Any):
        self.caller = caller
        self.settings = settings
        self.tokenizer = tokenizer
        self.seconds_of_prefill = 0.0
        self.seconds_of_decode = 0.0
        self.steps = 0
        """The calls of ``decode`` since the last call of `generate`, and the time that they took."""

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
        """Continue each prompt, in one batch.

        Args:
            prompts: at most as many as the batch of the module.
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
        sampling = Sampling(temperature, top_k, top_p)
        writers = [_Writer(self.tokenizer, tuple(stop)) for _ in texts]
        for tokens in self.tokens(
            [self.tokenizer(each)["input_ids"] for each in texts], max_new_tokens, sampling, seed
        ):
            for number, (writer, token) in enumerate(zip(writers, tokens, strict=True)):
                if writer.done:
                    continue
                added = writer.end() if token in self.settings.stop_tokens else writer.add(token)
                if added and on_text is not None:
                    on_text(number, added)
            if all(each.done for each in writers):
                break
        for number, writer in enumerate(writers):
            if not writer.done and (added := writer.rest()) and on_text is not None:
                on_text(number, added)
        return [Completion(each.text, tuple(each.tokens), "stop" if each.done else "length") for each in writers]

    def tokens(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, sampling: Sampling | None = None, seed: int = 0
    ) -> Iterator[list[int]]:
        """Return the next token of each prompt, given as tokens, then the ones after those; at most the context.

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
            chosen = choice.choose(logits, generator)
            yield chosen[: len(prompts)].tolist()
            if position == min(context, longest + max_new_tokens - 1):
                return
            start = time.perf_counter()
            logits = self.caller["decode"](chosen.unsqueeze(1), torch.tensor(position), padding)
            self.seconds_of_decode += time.perf_counter() - start
            self.steps += 1

    def score(self, texts: str | Sequence[str]) -> list[Score]:
        """Return how likely the model finds each text, in one batch. The first token of each is given.

        Raises:
            UsageError: for too many texts, one of a single token, or one that is longer than the context.
        """
        rows = [self.tokenizer(each)["input_ids"] for each in ([texts] if isinstance(texts, str) else texts)]
        if any(len(each) == 1 for each in rows):
            raise UsageError("a text of one token: the model says how likely a token is after others")
        tokens, padding = self._rows(rows, "texts")
        targets = tokens.roll(-1, 1)
        parts = self._in_chunks(self.caller["score"], tokens, padding, targets, most=_SCORED)
        found = torch.cat(list(parts), 1)[:, : tokens.shape[1] - 1]
        return [
            Score(tuple(each), tuple(found[number, found.shape[1] - len(each) + 1 :].tolist()))
            for number, each in enumerate(rows)
        ]

    def _rows(self, sequences: Sequence[Sequence[int]], what: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the batch of the module, [B, n], with zeros before the shorter ``sequences``, and their numbers, [B].

        Raises:
            UsageError: for too many sequences, an empty one, or one that is longer than the context.
        """
        batch, context = self.settings.batch, self.settings.context
        if not 1 <= len(sequences) <= batch:
            raise UsageError(f"{len(sequences)} {what}: the module was imported for 1 to {batch}, its batch")
        longest = max(map(len, sequences))
        if not all(sequences) or longest > context:
            raise UsageError(
                f"{what} of {', '.join(str(len(each)) for each in sequences)} tokens: accepted is 1 to {context}, the "
                "context that the module was imported with"
            )
        rows = [*sequences, *[sequences[0]] * (batch - len(sequences))]  # the rest is computed, and dropped
        padding = [longest - len(each) for each in rows]
        tokens = [[0] * zeros + list(each) for zeros, each in zip(padding, rows, strict=True)]
        return torch.tensor(tokens), torch.tensor(padding)

    def _prefill(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Return the logits after the last of ``tokens`` [B, n]."""
        *_, logits = self._in_chunks(self.caller["prefill"], tokens, padding, most=tokens.shape[1])
        return logits

    def _in_chunks(
        self,
        function: Callable[..., Any],
        tokens: torch.Tensor,
        padding: torch.Tensor,
        *others: torch.Tensor,
        most: int,
    ) -> Iterator[torch.Tensor]:
        """Call ``function`` with parts of ``tokens`` and of ``others`` [B, n], ``most`` or as many as it takes.

        Parts of a fixed length are filled up behind the tokens.
        """
        length, chunk = tokens.shape[1], self.settings.chunk
        size = chunk or most
        for start in range(0, length, size):
            given = min(size, length - start)
            parts = [each[:, start : start + given] for each in (tokens, *others)]
            first, *rest = [torch.nn.functional.pad(each, (0, chunk - given if chunk else 0)) for each in parts]
            yield function(first.contiguous(), torch.tensor(start), padding, torch.tensor(given - 1), *rest)


class _Writer:
    """The text of a sequence, token by token."""

    def __init__(self, tokenizer: Any, stop: tuple[str, ...]):
        self.tokenizer = tokenizer
        self.stop = stop
        self.tokens: list[int] = []
        self.text = ""
        self.shown = 0
        self.done = False

    def add(self, token: int) -> str:
        """Add ``token``, and return the text that is certain by now and was not returned before."""
        self.tokens.append(token)
        self.text = self.tokenizer.decode(self.tokens, skip_special_tokens=True)
        found = [at for each in self.stop if (at := self.text.find(each)) >= 0]
        if found:
            self.text, self.done = self.text[: min(found)], True
            return self._until(len(self.text))
        held = max((_overlap(self.text, each) for each in self.stop), default=0)  # the start of a string that ends it
        if self.text.endswith("\N{REPLACEMENT CHARACTER}"):  # the first bytes of a character
            held = max(held, 1)
        return self._until(len(self.text) - held)

    def end(self) -> str:
        """End the sequence, and return the text that was not returned before."""
        self.done = True
        return self.rest()

    def rest(self) -> str:
        """Return the text that was not returned before."""
        return self._until(len(self.text))

    def _until(self, length: int) -> str:
        added, self.shown = self.text[self.shown : length], max(self.shown, length)
        return added


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of ``text`` are the first of ``stop``."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)


class _Later:
    """A function of a module that is compiled when it is first used."""

    def __init__(self, load: Callable[[], Loaded]):
        self._loaded = functools.cache(load)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded(), name)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        return self._loaded()(*arguments)


def load(folder: str | os.PathLike[str], *, engine: str = "jit") -> LanguageModel:
    """Load a folder that `import_model` wrote, and compile its functions; ``score`` when it is first used.

    Args:
        folder: the folder.
        engine: ``"jit"``, ``"iree"`` or ``"xla"``.

    Raises:
        NotInstalledError: naming the extra that brings the engine, or transformers.
        UsageError: for another engine, a file that is missing, or weights that are not those of the module.
    """
    from transformers import AutoTokenizer

    path = Path(folder)
    if engine not in ENGINES:
        raise UsageError(f"the engine {engine!r}: accepted are {', '.join(ENGINES)}")
    settings = Settings.read(path)
    manifest_file = path / MODULE.replace(".mlirbc", ".manifest.json")
    try:
        manifest = Manifest.from_json(manifest_file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"'{manifest_file}' cannot be read: {error}; import the model again") from None
    weights = Path(settings.weights)
    source = weights if weights.is_absolute() else path / weights
    state = {
        name: torch.zeros(each.type.sizes, dtype=getattr(torch, each.type.dtype))
        for name, each in manifest.state.items()
    }
    if engine == "iree":  # which reads weights from where they are
        held = read_weights(manifest, source)
        passed = {key: as_passed(held[each.name], each) for key, each in manifest.weights.items()}
        backend, module = IreeBackend(parameters=passed), read_untrusted_module(path / MODULE)
    else:
        backend, module = backend_named(engine), link(path / MODULE, source, manifest)
    functions: dict[str, Loaded] = {name: backend.load(module, name) for name in ("prefill", "decode")}
    functions["score"] = _Later(functools.partial(backend.load, module, "score"))
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    return LanguageModel(Caller(manifest, functions, state), settings, tokenizer)
