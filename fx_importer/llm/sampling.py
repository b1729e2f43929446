"""Choose the next token of each sequence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fx_importer.errors import UsageError

_LEAST_TEMPERATURE = torch.finfo(torch.float32).tiny
"""Lower ones act as this one, at which only the most likely tokens have a probability."""


class LogitsError(UsageError):
    """The model computed NaN or infinite logits."""


@dataclass(frozen=True)
class Sampling:
    """The sampling options: temperature 0 selects the most likely token, larger values sample."""

    temperature: float = 0.0
    top_k: int | None = None
    """Sample from the ``top_k`` tokens with the highest logits."""
    top_p: float | None = None
    """Sample from the smallest set of most likely tokens whose total probability is at least ``top_p``."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise UsageError(f"a temperature of {self.temperature}: accepted is 0, for the most likely token, or more")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top_k={self.top_k}: accepted is 1 or more")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p={self.top_p}: accepted is more than 0, and at most 1")

    def choose(self, logits: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return a token for each row of ``logits``, [B, vocabulary]: int64 [B].

        Raises:
            LogitsError: if logits are NaN or infinite, but for -inf, which excludes a token.
        """
        highest = logits.amax(-1)  # NaN if one is
        if not bool(highest.isfinite().all()):
            row = int((~highest.isfinite()).nonzero()[0])
            value = "NaN" if bool(highest[row].isnan()) else "infinite"
            raise LogitsError(
                f"the logits of prompt {row} are {value}, so the next token has no probability: compare the model with "
                "eager PyTorch on this prompt"
            )
        if self.temperature == 0:
            return logits.argmax(-1)
        scores = logits.float()
        scores = (scores - scores.max(-1, keepdim=True).values) / max(self.temperature, _LEAST_TEMPERATURE)
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            least = scores.topk(self.top_k).values[:, -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if self.top_p is not None:
            ordered, places = scores.sort(-1, descending=True)
            likely = ordered.softmax(-1)
            dropped = likely.cumsum(-1) - likely >= self.top_p  # the tokens before it suffice
            scores = scores.masked_fill(dropped.scatter(-1, places, dropped), -torch.inf)
        return torch.multinomial(scores.softmax(-1), 1, generator=generator).squeeze(-1)
