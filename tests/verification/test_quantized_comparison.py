"""Integer programs against the quantized program that the user passed: accepted steps, and faults of integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_importer import Inputs, lower
from fx_importer.compiler import driver
from fx_importer.errors import QuantizationWarning
from fx_importer.quantization import to_integers
from fx_importer.verification.expected import compare_quantized, steps_of_results
from tests.engines.test_engine_table import needs_tosa
from tests.quantization.quantize_operators import dequantize
from tests.quantization.quantize_operators import quantize as stored

LEVELS = torch.arange(-100, 100).to(torch.int8)
NAN = math.nan


def changed(value: Tensor, by: float, count: int) -> Tensor:
    """Return ``value`` with ``by`` added to its last ``count`` elements."""
    result = value.clone()
    result[-count:] += by
    return result


@pytest.mark.parametrize(
    "actual, expected, step, passes",
    [
        (changed(LEVELS, 1, 200), LEVELS, 0.0, True),  # one step everywhere
        (changed(LEVELS, 2, 20), LEVELS, 0.0, True),
        (changed(LEVELS, 2, 200), LEVELS.clamp(-10, 10), 0.0, False),
        (changed(LEVELS, 20, 200), LEVELS, 0.0, False),  # less than 20 dB
        (changed(LEVELS, -60, 1), LEVELS, 0.0, False),  # one element, more than a quarter of the largest magnitude
        (LEVELS.float() * 0.1 + 0.1, LEVELS.float() * 0.1, 0.1, True),
        (torch.tensor([0.25]), torch.tensor([0.2]), 0.0, False),  # no step is known
        (torch.tensor([0.25]), torch.tensor([0.2]), 0.05, True),
        (torch.tensor([1.0, NAN]), torch.tensor([1.1, NAN]), 0.1, True),
        (torch.tensor([1.0, NAN]), torch.tensor([1.1, 2.0]), 0.1, False),
        (torch.tensor([1.0, math.inf]), torch.tensor([1.1, -math.inf]), 0.1, False),
        (changed(torch.zeros(20).long(), 1, 2), torch.zeros(20).long(), 0.0, True),  # places: nine tenths are equal
        (changed(torch.zeros(20).long(), 1, 3), torch.zeros(20).long(), 0.0, False),
        (torch.tensor([True]), torch.tensor([False]), 0.0, False),
        (torch.tensor(2), torch.tensor(1), 0.0, False),  # a single one is equal
        (LEVELS[:3], LEVELS[:4], 0.0, False),
        (LEVELS.int(), LEVELS, 0.0, False),
        (torch.zeros(0), torch.zeros(0), 0.0, True),
    ],
)
def test_accepted_differences(actual: Tensor, expected: Tensor, step: float, passes: bool) -> None:
    assert compare_quantized(actual, expected, step).passed == passes


def test_problem_states_figures() -> None:
    problem = compare_quantized(changed(LEVELS, 20, 200), LEVELS).problem
    assert "is 9.2 dB, and the largest difference is 20. Accepted are one step, or 20 dB and at most 0.25" in problem


def test_steps_are_scales_of_dequantized_results() -> None:
    class Returned(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            y = stored(dequantize(x), 0.05, 3)
            return dequantize(y, 0.05, 3), y, dequantize(y, 0.05, 3) + 1

    assert steps_of_results(torch.export.export(Returned(), (LEVELS,))) == [0.05, 0.0, 0.0]


class Model(nn.Module):
    """A table of a written value, with state that each call advances."""

    past: Tensor

    def __init__(self, write: bool = True, most: float = 8.0) -> None:
        super().__init__()
        self.register_buffer("past", torch.zeros(4))
        self.write, self.most = write, most

    def forward(self, x: Tensor) -> Tensor:
        y = dequantize(x, 0.05, 0)
        if self.write:
            y[:, 0] = 1.0
        y = dequantize(stored(y, 0.05, 0), 0.05, 0) + dequantize(stored(self.past, 0.05, 0), 0.05, 0)
        self.past.add_(1.0).clamp_(max=self.most)
        return stored(y, 0.1, 0)


X = torch.arange(-64, 64, 8, dtype=torch.int8).reshape(4, 4)


def lowered_as(integers: Callable[[], nn.Module], output_type: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lower `Model`; its integers compute another model, as after a wrong rewrite."""
    other = torch.export.export(integers(), (X,))
    monkeypatch.setattr(driver, "to_integers", lambda program, remark: to_integers(other, remark))
    return lower(Model(), X, output_type=output_type, mutation="functional", quantized="integer")


OUTPUT_TYPES = [pytest.param("tosa", "jit", marks=needs_tosa), ("linalg-on-tensors", "jit"), ("stablehlo", "stablehlo")]


@pytest.mark.parametrize("output_type, backend", OUTPUT_TYPES)
def test_right_integers_pass_over_several_calls(
    output_type: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = lowered_as(Model, output_type, monkeypatch)
    verdict = lowered.verify(inputs=[Inputs((X,))] * 3, backends=[backend])
    assert verdict
    assert [check.inputs for check in verdict.checks] == [0, 1, 2]
    of_the_model = {output.name for output in verdict.checks[0].outputs if output.name.endswith(", of the model")}
    assert of_the_model == {"output, of the model", "state 'past', of the model"}


@pytest.mark.parametrize("output_type, backend", OUTPUT_TYPES)
def test_lost_write_fails(output_type: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module is bit-exact against its integers, and these are wrong."""
    verdict = lowered_as(lambda: Model(write=False), output_type, monkeypatch).verify(X, backends=[backend])
    assert not verdict
    (check,) = verdict.checks
    passed = {output.name: output.comparison.passed for output in check.outputs}
    assert passed["output"]
    assert not passed["output, of the model"]


def test_state_that_stops_fails_at_a_later_call(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = lowered_as(lambda: Model(most=1.0), "linalg-on-tensors", monkeypatch)
    verdict = lowered.verify(inputs=[Inputs((X,))] * 3, backends=["jit"])
    passed = [{output.name: output.comparison.passed for output in check.outputs} for check in verdict.checks]
    assert all(each["output"] and each["state 'past'"] for each in passed)
    assert [each["state 'past', of the model"] for each in passed] == [True, False, False]
    assert [each["output, of the model"] for each in passed] == [True, True, False]


class Calibrated(nn.Module):
    """An input and state between Q/DQ of the range -6.4 to 6.35."""

    past: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("past", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(dequantize(stored(x, 0.05, 0), 0.05, 0))
        y = dequantize(stored(y, 0.05, 0), 0.05, 0) + dequantize(stored(self.past, 0.05, 0), 0.05, 0)
        self.past.add_(x[0])
        return dequantize(stored(y, 0.1, 0), 0.1, 0)


@pytest.mark.parametrize("output_type", ["tosa", "linalg-on-tensors", "stablehlo"])
def test_values_beyond_calibrated_ranges_are_warned_of(output_type: str) -> None:
    rows = torch.export.Dim("rows", min=1)
    lowered = lower(
        Calibrated(),
        torch.ones(2, 4),
        output_type=output_type,
        quantized="integer",
        mutation="functional",
        dynamic_shapes=({0: rows},),
        input_names=["rows"],
    )
    inside, beyond = torch.full((3, 4), 6.4), torch.full((3, 4), -40.0)
    assert lowered.verify(inside, backends=["jit"])
    with pytest.warns(QuantizationWarning) as warned:
        assert lowered.verify(inputs=[Inputs((inside,)), Inputs((beyond,)), Inputs((inside,))], backends=["jit"])
    (warning,) = warned
    assert str(warning.message) == (
        "quantized values saturate: input 'x' reaches -40, beyond its range -6.4 to 6.35; state 'past' reaches -33.6, "
        "beyond its range -6.4 to 6.35. Scales come from the calibration: pass inputs like these to it"
    )
    assert warning.filename == __file__
    lowered.run(inside)
    with pytest.warns(
        QuantizationWarning, match="input 'rows' reaches -40, beyond its range -6.4 to 6.35. Scales"
    ) as ran:
        lowered.run(beyond)
    assert ran[0].filename == __file__
    with pytest.warns(QuantizationWarning, match="saturate: state 'past' reaches -33.6, beyond its range -6.4 to 6.35"):
        lowered.run(beyond)  # of the input, it warned
