"""Which differences from eager are explained by rounding: those that eager itself shows if it rounds otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fx_importer.verification import TOLERANCES
from testing.fuzzing.defined import EXACT
from testing.fuzzing.program import Around, Call

_UNITS = {torch.float16: 2.0, torch.bfloat16: 2.0, torch.float32: 16.0, torch.float64: 16.0}
"""Units in the last place by which arguments and results of inexact operators are moved."""
_RUNS = 24
_ROOM = 4.0
"""Differences up to so many times the largest one among the runs of eager are explained."""


def explained_by_rounding(
    found: Sequence[Tensor], wanted: Sequence[Tensor], rerun: Callable[[Around], Sequence[Tensor]]
) -> bool:
    """Return whether every element that differs from eager's differs between eager's own runs, rounded otherwise."""
    generator = torch.Generator().manual_seed(0)
    runs = [rerun(_Moved(generator)) for _ in range(_RUNS)]
    if torch.set_flush_denormal(True):
        try:  # TOSA divides by way of a reciprocal, which overflows, and XLA flushes
            runs.append(rerun(lambda call, function, args, kwargs: function(*args, **kwargs)))
        finally:
            torch.set_flush_denormal(False)
    return all(
        not bool(_unexplained(a, e, [run[i] for run in runs]).any())
        for i, (a, e) in enumerate(zip(found, wanted, strict=True))
    )


def _unexplained(actual: Tensor, eager: Tensor, runs: Sequence[Tensor]) -> Tensor:
    """Return where ``actual`` differs from eager and no run does."""
    if eager.is_complex():
        parts = [torch.view_as_real(each.resolve_conj().resolve_neg()) for each in (actual, eager, *runs)]
        actual, eager, runs = parts[0], parts[1], parts[2:]
    if any(each.shape != eager.shape for each in runs):
        return torch.zeros(eager.shape, dtype=torch.bool)
    if not eager.is_floating_point():
        varies = torch.zeros(eager.shape, dtype=torch.bool)
        for each in runs:
            varies |= each != eager
        return (actual != eager) & ~varies
    a, e = actual.double(), eager.double()
    finite = e.isfinite()
    spread, varies = torch.zeros_like(e), torch.zeros(e.shape, dtype=torch.bool)
    for each in runs:
        x = each.double()
        varies |= (x.isnan() != e.isnan()) | (x.isinf() != e.isinf()) | (x.isinf() & (x != e))
        spread = torch.maximum(spread, torch.where(finite & x.isfinite(), (x - e).abs(), 0.0))
    rtol, atol = TOLERANCES[eager.dtype]
    scale = torch.where(finite, e.abs(), 0.0).max() if e.numel() else torch.tensor(1.0)
    near = (a - e).abs() <= rtol * e.abs() + atol * (scale if scale else 1.0) + _ROOM * spread
    same = torch.where(finite, near & a.isfinite(), (a == e) | (a.isnan() & e.isnan()))
    return ~same & ~varies


class _Moved:
    """Moves the arguments and results of inexact operators by some units in the last place.

    A result that is so small beside the first argument may be what remains of a cancellation: it is zero at random, and
    at the places of the argument it is moved by as much as the argument.
    """

    def __init__(self, generator: torch.Generator):
        self._generator = generator

    def __call__(self, call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if call.target in EXACT and not self._is_half(args):
            return function(*args, **kwargs)
        first, rest = args[0], args[1:]
        if not call.target.endswith("_"):
            first = tree_map(self._moved, first)
        found = function(first, *tree_map(self._moved, rest), **tree_map(self._moved, kwargs))
        if call.target in EXACT:
            return found
        if call.target.endswith("_"):
            with torch.no_grad():
                return found.copy_(self._moved(found)) if isinstance(found, Tensor) else found
        return tree_map(lambda each: self._moved(self._cancelled(each, first)), found)

    def _cancelled(self, result: Any, first: Any) -> Any:
        tensors = all(isinstance(each, Tensor) and each.dtype in _UNITS for each in (result, first))
        if not tensors or not first.numel():
            return result
        units = _UNITS[first.dtype] * torch.finfo(first.dtype).eps * torch.where(first.isfinite(), first, 0).abs()
        here = torch.randint(0, 2, result.shape, generator=self._generator).bool()
        moved = torch.where(here & (result.abs() <= units.max()), 0, result)
        if result.shape != first.shape:
            return moved
        steps = torch.randint(-1, 2, result.shape, generator=self._generator)
        return moved + torch.where(result.abs() <= units, units * steps, 0).to(result.dtype)

    @staticmethod
    def _is_half(args: tuple[Any, ...]) -> bool:
        return any(isinstance(each, Tensor) and each.dtype in (torch.float16, torch.bfloat16) for each in args)

    def _moved(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or x.dtype not in _UNITS:
            return x
        steps = torch.randint(-1, 2, x.shape, generator=self._generator).to(x.dtype)
        return x + torch.where(x.isfinite(), x, 0) * steps * (_UNITS[x.dtype] * torch.finfo(x.dtype).eps)
