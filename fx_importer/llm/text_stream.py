"""Text of a sequence as its tokens come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Completion:
    """What a model wrote after a prompt."""

    text: str
    tokens: tuple[int, ...]
    """The new tokens, without the one that ended them."""
    finished: str
    """``"stop"``, at a token or a string that ends it; ``"length"``, at the number of tokens or the context."""


class TextStream:
    """The text of a sequence, token by token."""

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()):
        self.tokenizer = tokenizer
        self.stop = tuple(each for each in stop if each)
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

    def completion(self) -> Completion:
        """Return what was written."""
        return Completion(self.text, tuple(self.tokens), "stop" if self.done else "length")

    def _until(self, length: int) -> str:
        added, self.shown = self.text[self.shown : length], max(self.shown, length)
        return added


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of ``text`` are the first of ``stop``."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
