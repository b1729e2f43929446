"""A sequence in the cache of a model, which grows and is cut."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from fx_importer.errors import UsageError


class CachedSequence(ABC):
    """A sequence in the cache of a model, which grows and is cut."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        """Those in the cache."""

    @abstractmethod
    def append(self, tokens: Sequence[int]) -> torch.Tensor:
        """Append tokens that fit the context, and return the logits after the last, [1, vocabulary]."""

    @abstractmethod
    def verify(self, tokens: Sequence[int]) -> torch.Tensor:
        """Append tokens, at most one more than the import's draft, and return the logits after each, [n, vocabulary].

        Raises:
            UsageError: if the module has no ``verify``.
        """

    @abstractmethod
    def cut(self, length: int) -> None:
        """Keep the first ``length`` tokens, or none where the cache has lost them."""

    @abstractmethod
    def close(self) -> None:
        """Free what it holds in the cache."""


def filled_draft(tokens: Sequence[int], draft: int | None) -> list[int]:
    """Return what ``verify`` takes: ``tokens``, filled up. Raises `UsageError` for too many, and without a draft."""
    if draft is None:
        raise UsageError(
            "the module has no function 'verify': import the model with draft=, the number of proposed tokens"
        )
    if not 1 <= len(tokens) <= draft + 1:
        raise UsageError(f"{len(tokens)} tokens to verify: accepted are 1 to {draft + 1}")
    return [*tokens, *[0] * (draft + 1 - len(tokens))]
