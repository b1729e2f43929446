"""Decode the text of a sequence as its tokens arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Completion:
    """The text that a model generated after a prompt."""

    text: str
    tokens: tuple[int, ...]
    """The new tokens, without the stop token."""
    finished: str
    """``"stop"``, ended by a stop token or stop string; or ``"length"``, ended by the token limit or the context."""


class TextStream:
    """The text of a sequence, token by token."""

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()):
        self.tokenizer = tokenizer
        self.stop = tuple(word for word in stop if word)
        self.tokens: list[int] = []
        self.text = ""
        self.shown = 0
        self.done = False

    def add(self, token: int) -> str:
        """Add ``token``, and return the new text that later tokens can no longer change."""
        self.tokens.append(token)
        self.text = self.tokenizer.decode(self.tokens, skip_special_tokens=True)
        ends = [at for word in self.stop if (at := self.text.find(word)) >= 0]
        if ends:
            self.text, self.done = self.text[: min(ends)], True
            return self._until(len(self.text))
        kept = max((_overlap(self.text, word) for word in self.stop), default=0)  # a possible prefix of a stop string
        if self.text.endswith("\N{REPLACEMENT CHARACTER}"):  # an incomplete character
            kept = max(kept, 1)
        return self._until(len(self.text) - kept)

    def end(self) -> str:
        """End the sequence, and return the text that was not returned yet."""
        self.done = True
        return self.rest()

    def rest(self) -> str:
        """Return the text that was not returned yet."""
        return self._until(len(self.text))

    def completion(self) -> Completion:
        """Return the completion so far."""
        return Completion(self.text, tuple(self.tokens), "stop" if self.done else "length")

    def _until(self, length: int) -> str:
        added, self.shown = self.text[self.shown : length], max(self.shown, length)
        return added


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of ``text`` that is a proper prefix of ``stop``."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
