"""Models are lowered, and results called, from several threads; `benchmarks/threads.py` repeats it for all kinds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch

from benchmarks.threads import Calling, Case, Counting, Lowering, Perceptron, at_once, float_cases, settings
from fx_importer import lower
from fx_importer.errors import ExportError


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return float_cases()


def only(cases: list[Case], output_type: str, *names: str) -> list[Case]:
    return [replace(case, output_types=(output_type,)) for case in cases if case.name in names]


@pytest.mark.parametrize("repetition", [0, 3], ids=["different models", "one exported program"])
def test_eight_threads_lower(cases: list[Case], repetition: int):
    chosen = only(cases, "linalg-on-tensors", "module", "program", "dynamic", "dynamic program", "recurrent")
    lowering, before = Lowering(chosen), settings()
    assert lowering(repetition) == []
    assert settings() == before


def test_eight_threads_call_one_result_for_the_first_time(cases: list[Case]):
    assert Calling(only(cases, "linalg-on-tensors", "dynamic"))(0) == []


def test_no_call_with_state_is_lost(cases: list[Case]):
    assert Counting(cases)(0) == []


def test_other_threads_lower_after_an_error():
    def fails(x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x

    def fail():
        with pytest.raises(ExportError, match="cannot capture fails"):
            lower(fails, torch.ones(2), output_type="torch", capture="export")

    def succeed():
        lower(torch.nn.ReLU(), torch.ones(2), output_type="torch")

    before = settings()
    assert at_once([fail, succeed] * 2) == []
    assert settings() == before


def test_lowering_in_an_event_loop():
    model, x = Perceptron().eval(), torch.randn(2, 6)

    async def lower_twice():
        return await asyncio.gather(
            *(asyncio.to_thread(lower, model, x, output_type=kind) for kind in ("linalg-on-tensors", "torch"))
        )

    lowered, _ = asyncio.run(lower_twice())
    torch.testing.assert_close(lowered(x), model(x))
