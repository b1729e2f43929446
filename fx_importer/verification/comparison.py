"""Two values, held against each other: how far apart they are, and whether that is within what the dtype allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

TOLERANCES: Mapping[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (1e-4, 2e-5),
    torch.float16: (5e-3, 5e-3),
    torch.bfloat16: (3e-2, 3e-2),
    torch.float8_e4m3fn: (0.125, 0.0625),
    torch.float8_e4m3fnuz: (0.125, 0.0625),
    torch.float8_e5m2: (0.25, 0.125),
    torch.float8_e5m2fnuz: (0.25, 0.125),
    torch.complex128: (1e-9, 1e-9),
    torch.complex64: (1e-4, 2e-5),
    torch.complex32: (5e-3, 5e-3),
}
"""``(rtol, atol)`` by dtype; what is not here (integers, booleans) is exact. `Tolerance` says what they mean."""


@dataclass(frozen=True)
class Tolerance:
    """How far an element ``a`` may be from eager's ``e``: ``|a - e| <= rtol * |e| + atol * scale``.

    By default both come from `TOLERANCES`, and ``scale`` is the largest finite magnitude of eager's whole tensor (1
    where that is 0). The rounding errors of a sum are in proportion to what was summed, not to what is left of it
    where much cancels: an element near 0 beside large ones is as uncertain as they are. An ``atol`` of one's own is
    absolute, with a ``scale`` of 1. Complex numbers are compared by their parts; integers and booleans are exact,
    whatever is given.
    """

    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True)
class Comparison:
    """What came out, beside what eager has. NaN equals NaN, and an infinity itself."""

    dtype: str
    """Eager's: ``"float32"``; for what is no tensor, the name of its type."""
    shape: tuple[int, ...]
    elements: int
    problem: str = ""
    """Why there is nothing to measure: another type, dtype or shape. Then the figures below are 0."""
    nan_positions_equal: bool = True
    infinities_equal: bool = True
    """Their positions and signs."""
    max_absolute: float = 0.0
    """Over the elements that are finite in both, as are the next two."""
    max_relative: float = 0.0
    """Over eager's elements that are not 0."""
    max_ulp: float = 0.0
    """How many numbers of the dtype lie between the two; 0 for integers."""
    magnitude: float = 0.0
    """The largest finite one of eager's tensor."""
    out_of_tolerance: int = 0
    """Elements; those with a NaN or an infinity on one side only are among them."""
    worst: tuple[int, ...] | None = None
    """Index of the element that is furthest out of tolerance; of the largest difference, if none is."""
    actual: Any = None
    """The value there."""
    expected: Any = None
    """Eager's."""

    @property
    def passed(self) -> bool:
        return not self.problem and not self.out_of_tolerance

    def __str__(self) -> str:
        """One line: what is wrong, or how far apart the values are."""
        if self.problem:
            return self.problem
        figures = f"absolute {self.max_absolute:.3g}, relative {self.max_relative:.3g}, {self.max_ulp:.3g} ulp"
        if self.passed:
            return figures
        where = "" if not self.worst else f" at {list(self.worst)}"
        return (
            f"{self.out_of_tolerance:,} of {self.elements:,} elements differ ({figures}); "
            f"worst{where}: {self.actual!r}, eager has {self.expected!r}"
        )


def compare(actual: Any, expected: Any, tolerance: Tolerance | None = None) -> Comparison:
    """Compare a value with eager's: tensors, numbers, None and strings."""
    tolerance = tolerance or Tolerance()
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        return _compare_tensors(actual.detach(), expected.detach(), tolerance)
    kind = type(expected).__name__
    if type(actual) is not type(expected):
        problem = f"is of type {type(actual).__name__}, eager has {kind}"
        return Comparison(kind, (), 1, problem)
    if isinstance(expected, float):
        # What a float32 tensor gave as a Python number is as exact as float32, and float64 holds it.
        rtol, atol = TOLERANCES[torch.float32]
        rtol = rtol if tolerance.rtol is None else tolerance.rtol
        relative = Tolerance(rtol + atol if tolerance.atol is None else rtol, tolerance.atol or 0.0)
        numbers = torch.tensor(actual, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)
        found = _compare_tensors(*numbers, relative)
        return Comparison(**{**vars(found), "dtype": kind})
    if actual != expected:
        return Comparison(kind, (), 1, out_of_tolerance=1, worst=(), actual=actual, expected=expected)
    return Comparison(kind, (), 1)


def _compare_tensors(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> Comparison:
    dtype, shape = str(expected.dtype).removeprefix("torch."), tuple(expected.shape)
    found = [
        f"{what} is {met}, eager has {wanted}"
        for what, met, wanted in (
            ("dtype", str(actual.dtype).removeprefix("torch."), dtype),
            ("shape", list(actual.shape), list(shape)),
            ("layout", actual.layout, expected.layout),
        )
        if met != wanted
    ]
    if found:
        return Comparison(dtype, shape, expected.numel(), "; ".join(found))
    if expected.layout is not torch.strided:
        actual, expected = actual.to_dense(), expected.to_dense()
    if expected.dtype not in TOLERANCES:
        return _compare_exactly(actual, expected, dtype, shape)
    parts = _parts(actual), _parts(expected)
    a, e = (each.to(torch.float64) for each in parts)
    rtol, atol = TOLERANCES[expected.dtype]
    rtol = rtol if tolerance.rtol is None else tolerance.rtol
    finite = a.isfinite() & e.isfinite()
    bound = torch.where(e.isfinite(), e.abs(), 0.0) * rtol
    bound += atol * (_magnitude(e) or 1.0) if tolerance.atol is None else tolerance.atol
    nans, infinities = a.isnan() == e.isnan(), _infinities(a) == _infinities(e)
    difference = torch.where(finite, (a - e).abs(), 0.0)
    wrong = (difference > bound) | ~nans | ~infinities
    excess = torch.where(nans & infinities, difference - bound, torch.inf)
    nonzero = torch.where(finite & (e != 0), e.abs(), torch.inf)
    count = wrong if not expected.is_complex() else wrong.any(-1)
    return Comparison(
        dtype,
        shape,
        expected.numel(),
        nan_positions_equal=bool(nans.all()),
        infinities_equal=bool(infinities.all()),
        max_absolute=_max(difference),
        max_relative=_max(difference / nonzero),
        max_ulp=_max(torch.where(finite, (_steps(parts[0]) - _steps(parts[1])).abs(), 0.0)),
        magnitude=_magnitude(e),
        out_of_tolerance=int(count.sum()),
        **_worst(excess, actual, expected),
    )


def _compare_exactly(actual: torch.Tensor, expected: torch.Tensor, dtype: str, shape: tuple[int, ...]) -> Comparison:
    wrong = actual != expected
    a, e = (each.to(torch.float64) for each in (actual, expected))
    difference = (a - e).abs()
    return Comparison(
        dtype,
        shape,
        expected.numel(),
        max_absolute=_max(difference),
        max_relative=_max(difference / torch.where(e != 0, e.abs(), torch.inf)),
        magnitude=_max(e.abs()),
        out_of_tolerance=int(wrong.sum()),
        **_worst(torch.where(wrong, difference.clamp(min=1.0), 0.0), actual, expected),
    )


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """Return a complex tensor as its real and imaginary parts, in a last axis of two; another one as it is."""
    return torch.view_as_real(tensor.resolve_conj().resolve_neg()) if tensor.is_complex() else tensor


def _magnitude(values: torch.Tensor) -> float:
    return _max(torch.where(values.isfinite(), values.abs(), 0.0))


def _infinities(values: torch.Tensor) -> torch.Tensor:
    """Return 1, -1 or 0 for each element."""
    return (values == torch.inf).to(torch.int8) - (values == -torch.inf).to(torch.int8)


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _steps(values: torch.Tensor) -> torch.Tensor:
    """Return the place of each element among all numbers of its dtype, from 0 for zero; the bits of a float count."""
    bits = values.contiguous().view(_INTEGERS[values.dtype.itemsize])
    # The sign is the highest bit; what is below it counts away from 0.
    magnitude = (bits & torch.iinfo(bits.dtype).max).to(torch.float64)
    return torch.where(bits < 0, -magnitude, magnitude)


def _max(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _worst(excess: torch.Tensor, actual: torch.Tensor, expected: torch.Tensor) -> dict[str, Any]:
    """Return where ``excess`` is largest, and both values there."""
    if not excess.numel():
        return {}
    position = int(excess.argmax())
    index = tuple(int(each) for each in torch.unravel_index(torch.tensor(position), excess.shape))[: expected.dim()]
    return {"worst": index, "actual": actual[index].item(), "expected": expected[index].item()}
