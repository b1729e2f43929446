"""Random programs that are quantized: the quantized module, its values in eager, and how results are compared."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer import quantize
from fx_importer.verification import Comparison
from fx_importer.verification.expected import compare_quantized
from testing.fuzzing.program import Program

LEAST_RATIO = 6.0
"""Least signal to noise of a quantized module compared with the float model, in dB: lost writes have less."""


def quantized_model(program: Program) -> torch.nn.Module:
    """Return the quantized module of a program, calibrated with the inputs of all its calls.

    The observer is the one without a search, which takes a second for each value.
    """
    calls = [program.tensors(call=call) for call in range(program.runs)]
    return quantize(program.model(), calls, observer="minmax", dynamic_shapes=program.dynamic_shapes())


def values_of(model: torch.nn.Module, program: Program, sizes: Mapping[int, int]) -> list[Tensor]:
    """Return the results of each call of a copy of ``model``, and its inputs as they are left."""
    model, values = copy.deepcopy(model), []
    with torch.no_grad():
        for call in range(program.runs):
            inputs = program.tensors(sizes, call)
            values += [each.detach().clone() for each in (*model(*inputs), *inputs)]
    return values


def lost(quantized: Sequence[Tensor], floats: Sequence[Tensor]) -> str:
    """Return how far a quantized module is from the float model in its values, or nothing if it is near.

    Each value has about 7 bits, of a range that its largest element sets.
    """
    for i, (a, e) in enumerate(zip(quantized, floats, strict=True)):
        if a.shape != e.shape or a.dtype is not e.dtype:
            return f"value {i} of the quantized module: {a.dtype}{list(a.shape)}, in float {e.dtype}{list(e.shape)}"
        signal, noise = (float(part.double().square().sum()) for part in (e, a.double() - e.double()))
        if noise and 10 * math.log10(max(signal, 1e-300) / noise) < LEAST_RATIO and noise > 1e-2 * e.numel():
            return f"value {i} of the quantized module is {a.flatten()[:6]}, in float {e.flatten()[:6]}"
    return ""


def compared(actual: Any, expected: Any) -> Comparison:
    """Compare a result in integers with the quantized module's in eager, whose scales are about a hundredth."""
    has_scale = isinstance(expected, Tensor) and expected.is_floating_point() and expected.numel()
    return compare_quantized(actual, expected, float(expected.abs().max()) / 100 if has_scale else 0.0)
