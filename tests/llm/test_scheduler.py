"""Sequences that share steps do not share failures."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fx_importer.llm.sampling import LogitsError, Sampling
from fx_importer.llm.scheduler import Scheduler

VOCABULARY = 8


class Model:
    """Continues a token by the next number; logits of what follows token 6 are NaN."""

    def __init__(self):
        self.settings = SimpleNamespace(context=32, batch=2)
        self.vocabulary, self.pages, self.most = VOCABULARY, 9, 4
        self.free_pages = list(range(1, 9))

    def pages_for(self, tokens: int) -> int:
        return 1

    def take_pages(self, count: int) -> list[int]:
        return [self.free_pages.pop() for _ in range(count)]

    def prefill(self, tokens: Any, pages: Any, cached: int) -> torch.Tensor:
        return self._logits(tokens[-1])[None]

    def decode(self, rows: Any) -> torch.Tensor:
        return torch.stack([self._logits(rows[row][0]) if row in rows else torch.zeros(VOCABULARY) for row in range(2)])

    def _logits(self, token: int) -> torch.Tensor:
        found = torch.full((VOCABULARY,), -math.inf)
        found[(token + 1) % VOCABULARY] = math.nan if token == 6 else 1.0
        return found


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_ends_its_own_sequence(temperature: float):
    model: Any = Model()
    scheduler = Scheduler(model)
    fails, runs = (
        scheduler.add(prompt, max_new_tokens=4, sampling=Sampling(temperature)) for prompt in ([3, 4], [0, 1])
    )
    while not scheduler.is_idle:
        scheduler.step()
    assert fails.tokens == [5, 6]
    assert isinstance(fails.error, LogitsError)
    assert fails.done
    assert runs.tokens == [2, 3, 4, 5]
    assert runs.error is None
    assert sorted(model.free_pages) == list(range(1, 9))


def test_logits_without_a_highest_are_refused():
    logits = torch.zeros(2, 4)
    logits[1, 2] = math.inf
    with pytest.raises(LogitsError, match="prompt 1 are infinite, so the next token has no probability"):
        Sampling().choose(logits, torch.Generator())
