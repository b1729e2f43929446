"""Tables of int16: their error is computed at all operands, and functions that jump stay in floating point."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer import lower
from fx_importer.quantization.scales import NoIntegerForm, Params
from fx_importer.quantization.wide_tables import MAX_STEPS, wide_table_of
from tests.quantization.quantize_operators import q

LEVELS = torch.arange(-(2**15), 2**15)
JUMPS: dict[str, Callable[[Tensor], Tensor]] = {
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "frac": torch.frac,
    "remainder": lambda x: torch.remainder(x, 0.7),
    "fmod": lambda x: torch.fmod(x, 0.7),
    "hardshrink": F.hardshrink,
    "threshold": lambda x: F.threshold(x, 0.5, -1.0),
}
TABLES: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "softshrink": F.softshrink,
    "sign": torch.sign,
    "heaviside": lambda x: torch.heaviside(x, torch.tensor(0.5)),
    "steep sigmoid": lambda x: torch.sigmoid(200 * x),
}


def params(values: Tensor, bits: int) -> Params:
    high = 2 ** (bits - 1) - 1
    return Params(float(values.abs().max()) / high, 0, -high - 1, high, bits)


@pytest.mark.parametrize("bits", [16, 8])
@pytest.mark.parametrize("name", [*JUMPS, *TABLES])
def test_a_table_is_taken_where_its_error_is_bounded(name: str, bits: int) -> None:
    function, scale = {**JUMPS, **TABLES}[name], 4.0 / 2**15
    results = params(function(LEVELS * scale), bits)
    if name in JUMPS:
        with pytest.raises(NoIntegerForm, match="jumps|rises"):
            wide_table_of(function, LEVELS, scale, results)
    else:
        assert wide_table_of(function, LEVELS, scale, results).steps <= MAX_STEPS[bits]


def test_a_function_that_is_constant_far_out_is_spread() -> None:
    """A sigmoid of operands up to 1000 would have four entries that are not 0 or 1."""
    table = wide_table_of(torch.sigmoid, LEVELS, 1000 / 2**15, Params(2.0**-15, 0, -(2**15), 2**15 - 1, 16))
    assert table.gain > 50
    assert table.steps <= 2


INT16 = (2.0**-13, 0, -(2**15), 2**15 - 1, torch.int16)


@pytest.mark.parametrize(("name", "coverage"), [("remainder", "0 of 1"), ("sign", "1 of 1"), ("tanh", "1 of 1")])
def test_programs_are_within_the_reported_steps(name: str, coverage: str) -> None:
    function = {**JUMPS, **TABLES}[name]

    def model(x: Tensor) -> Tensor:
        return q.quantize_per_tensor(function(q.dequantize_per_tensor(x, *INT16)), *INT16)

    x = LEVELS.to(torch.int16)[None]
    lowered = lower(model, x, output_type="linalg-on-tensors", quantized="integer")
    summary, *floats = lowered.trace.stages[0].remarks
    assert coverage in summary
    assert ("tables of int16 at most" in summary) == (not floats)
    assert all(name in each and "steps of int16" in each for each in floats)
    assert (lowered.run(x).int() - model(x).int()).abs().max() <= 8
