"""A sequence in a model's cache, which can grow and be truncated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from fx_importer.errors import UsageError


class CachedSequence(ABC):
    """A sequence in a model's cache, which can grow and be truncated."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        """The tokens in the cache."""

    @abstractmethod
    def append(self, tokens: Sequence[int]) -> torch.Tensor:
        """Append tokens, which must fit the context, and return the logits after the last one, [1, vocabulary]."""

    @abstractmethod
    def verify(self, tokens: Sequence[int]) -> torch.Tensor:
        """Append at most `Settings.draft` + 1 tokens, and return the logits after each of them, [n, vocabulary].

        Raises:
            UsageError: if the module has no ``verify``.
        """

    @abstractmethod
    def cut(self, length: int) -> None:
        """Keep the first ``length`` tokens, or none if the cache has overwritten them."""

    @abstractmethod
    def close(self) -> None:
        """Free the sequence's part of the cache."""


def filled_draft(tokens: Sequence[int], draft: int | None) -> list[int]:
    """Pad ``tokens`` for ``verify``. Raises `UsageError` if there are too many, or the module has no ``verify``."""
    if draft is None:
        raise UsageError(
            "the module has no function 'verify': import the model with draft=, the number of proposed tokens"
        )
    if not 1 <= len(tokens) <= draft + 1:
        raise UsageError(f"{len(tokens)} tokens to verify: accepted are 1 to {draft + 1}")
    return [*tokens, *[0] * (draft + 1 - len(tokens))]
