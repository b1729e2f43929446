"""Comparison of two values within tolerances by dtype."""

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
"""``(rtol, atol)`` by dtype, as defined in `Tolerance`; other dtypes (integers, bool) are compared exactly."""


@dataclass(frozen=True)
class Tolerance:
    """Tolerance of an element ``a`` compared with eager's ``e``: ``|a - e| <= rtol * |e| + atol * scale``.

    By default both come from `TOLERANCES`, and ``scale`` is the largest finite magnitude of eager's whole tensor (1 if
    that is 0): rounding errors of a sum are proportional to its terms, not to a result near 0 after cancellation. A
    given ``atol`` is absolute, with a ``scale`` of 1. Complex numbers are compared by their parts; integers and bools
    are always compared exactly.
    """

    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Comparison of a value with eager's. NaN equals NaN; infinities are equal if their signs are."""

    dtype: str
    """Eager's dtype, ``"float32"``; for other values, the name of the type."""
    shape: tuple[int, ...]
    elements: int
    problem: str = ""
    """Difference in type, dtype or shape; then the figures below are 0."""
    nan_positions_equal: bool = True
    infinities_equal: bool = True
    """Whether positions and signs of infinities are equal."""
    max_absolute: float = 0.0
    """Over elements that are finite in both, like the next two."""
    max_relative: float = 0.0
    """Over eager's nonzero elements."""
    max_ulp: float = 0.0
    """Distance in units in the last place; 0 for integers."""
    magnitude: float = 0.0
    """Largest finite magnitude of eager's tensor."""
    out_of_tolerance: int = 0
    """Number of elements, including those with a NaN or an infinity on one side only."""
    worst: tuple[int, ...] | None = None
    """Index of the element furthest out of tolerance; of the largest difference, if none is."""
    actual: Any = None
    """Actual value at ``worst``."""
    expected: Any = None
    """Eager's value at ``worst``."""

    @property
    def passed(self) -> bool:
        return not self.problem and not self.out_of_tolerance

    def __str__(self) -> str:
        """Return one line with the problem, or the differences."""
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
        # The scalar may come from a float32 tensor, so float32's tolerance applies.
        rtol, atol = TOLERANCES[torch.float32]
        rtol = rtol if tolerance.rtol is None else tolerance.rtol
        relative = Tolerance(rtol + atol if tolerance.atol is None else rtol, tolerance.atol or 0.0)
        numbers = torch.tensor(actual, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)
        compared = _compare_tensors(*numbers, relative)
        return Comparison(**{**vars(compared), "dtype": kind})
    if actual != expected:
        return Comparison(kind, (), 1, out_of_tolerance=1, worst=(), actual=actual, expected=expected)
    return Comparison(kind, (), 1)


def _compare_tensors(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> Comparison:
    dtype, shape = str(expected.dtype).removeprefix("torch."), tuple(expected.shape)
    problems = [
        f"{what} is {met}, eager has {wanted}"
        for what, met, wanted in (
            ("dtype", str(actual.dtype).removeprefix("torch."), dtype),
            ("shape", list(actual.shape), list(shape)),
            ("layout", actual.layout, expected.layout),
        )
        if met != wanted
    ]
    if problems:
        return Comparison(dtype, shape, expected.numel(), "; ".join(problems))
    if expected.layout is not torch.strided:
        actual, expected = actual.to_dense(), expected.to_dense()
    if expected.dtype not in TOLERANCES:
        return _compare_exactly(actual, expected, dtype, shape)
    parts = _parts(actual), _parts(expected)
    a, e = (part.to(torch.float64) for part in parts)
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
    a, e = (tensor.to(torch.float64) for tensor in (actual, expected))
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
    """Return a complex tensor as a real one with a last axis of two; other tensors are returned unchanged."""
    return torch.view_as_real(tensor.resolve_conj().resolve_neg()) if tensor.is_complex() else tensor


def _magnitude(values: torch.Tensor) -> float:
    return _max(torch.where(values.isfinite(), values.abs(), 0.0))


def _infinities(values: torch.Tensor) -> torch.Tensor:
    """Return 1 for inf, -1 for -inf and 0 for other elements."""
    return (values == torch.inf).to(torch.int8) - (values == -torch.inf).to(torch.int8)


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _steps(values: torch.Tensor) -> torch.Tensor:
    """Return the signed number of representable values between 0 and each element, from the bits of the float."""
    bits = values.contiguous().view(_INTEGERS[values.dtype.itemsize])
    # The sign is the highest bit; the others are ordered by magnitude.
    magnitude = (bits & torch.iinfo(bits.dtype).max).to(torch.float64)
    return torch.where(bits < 0, -magnitude, magnitude)


def _max(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _worst(excess: torch.Tensor, actual: torch.Tensor, expected: torch.Tensor) -> dict[str, Any]:
    """Return the position of the largest ``excess``, and both values there."""
    if not excess.numel():
        return {}
    position = int(excess.argmax())
    index = tuple(int(index) for index in torch.unravel_index(torch.tensor(position), excess.shape))[: expected.dim()]
    return {"worst": index, "actual": actual[index].item(), "expected": expected[index].item()}
