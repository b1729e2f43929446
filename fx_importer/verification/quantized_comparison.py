"""Comparison of results computed in integers with the quantized program that the user passed.

The integer form rounds elsewhere than quantize and dequantize operators in floating point: results differ by steps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from fx_importer.verification.comparison import TOLERANCES, Comparison, compare

LEAST_RATIO = 20.0
"""Least signal to noise of a result that differs by more than one step, in dB."""
LARGEST_ERROR = 0.25
"""Largest difference of one element of it, relative to the largest magnitude of the result."""
LEAST_EQUAL = 0.9
"""Least part of equal elements of results that are places or bools, not quantized values."""
_QUANTIZED = (torch.int8, torch.uint8, torch.int16)


def compare_quantized(actual: Any, expected: Any, step: float = 0.0) -> Comparison:
    """Compare a result in integers with eager's of the program that was passed.

    It passes if no element differs by more than one ``step`` (1 for int8, uint8 and int16), or within `LEAST_RATIO`
    and `LARGEST_ERROR`. Of other integers and bools, `LEAST_EQUAL` elements are equal, and a single one is.
    """
    found = compare(actual, expected)
    if found.passed or found.problem or not isinstance(expected, torch.Tensor):
        return found
    if expected.dtype in TOLERANCES and not (found.nan_positions_equal and found.infinities_equal):
        return found
    if expected.dtype not in _QUANTIZED and expected.dtype not in TOLERANCES:
        equal = 1 - found.out_of_tolerance / found.elements
        return replace(found, out_of_tolerance=0) if found.elements > 1 and equal >= LEAST_EQUAL else found
    step = 1.0 if expected.dtype in _QUANTIZED else step
    if found.max_absolute <= step * 1.001:
        return replace(found, out_of_tolerance=0)
    ratio = _ratio(actual, expected)
    if ratio >= LEAST_RATIO and found.max_absolute <= LARGEST_ERROR * found.magnitude:
        return replace(found, out_of_tolerance=0)
    return replace(
        found,
        problem=f"signal to noise relative to the quantized program in eager PyTorch is {ratio:.1f} dB, and the "
        f"largest difference is {found.max_absolute:.3g}. Accepted are one step, or {LEAST_RATIO:.0f} dB and at most "
        f"{LARGEST_ERROR} of the largest magnitude, {found.magnitude:.3g}",
    )


def _ratio(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the signal to noise of the elements that are finite, in dB."""
    kind = torch.complex128 if expected.is_complex() else torch.float64
    a, e = actual.to(kind), expected.to(kind)
    finite = a.isfinite() & e.isfinite()
    signal, noise = (float(part[finite].abs().square().sum()) for part in (e, a - e))
    return math.inf if noise == 0 else 10 * math.log10(max(signal, 1e-300) / noise)


def steps_of_results(program: ExportedProgram) -> list[float]:
    """Return the scale of each result that a dequantize operator with one known scale returns, and 0 for others."""
    specs = program.graph_signature.output_specs
    results: Any = program.graph.output_node().args[0]
    return [_scale(result) for spec, result in zip(specs, results, strict=True) if spec.kind is OutputKind.USER_OUTPUT]


def _scale(result: Any) -> float:
    called = isinstance(result, fx.Node) and str(result.target).startswith("quantized_decomposed.dequantize_per_tensor")
    scale = result.args[1] if called else 0.0
    return float(scale) if isinstance(scale, int | float) else 0.0
