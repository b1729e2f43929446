"""Rules of operators whose C++ lowerings to StableHLO are wrong, or missing, for unsigned integers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten

_WIDE = {torch.uint8: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}


@decomposes(aten.full.default)
def full(size: Sequence[int], value: float, *, dtype: torch.dtype | None = None, **settings: Any) -> Tensor:
    """Make the constant signed and convert it: in an unsigned one, literal and type disagree."""
    if dtype not in _WIDE or not isinstance(value, int | float):
        return NotImplemented
    bits = int(value) - 2**64 if value >= 2**63 else int(value)
    return torch.full(size, bits, dtype=_WIDE[dtype]).to(dtype)


@decomposes(aten.full_like.default)
def full_like(x: Tensor, value: float, *, dtype: torch.dtype | None = None, **settings: Any) -> Tensor:
    """Make the constant as `full`."""
    del settings
    return full(x.shape, value, dtype=dtype or x.dtype)


@decomposes(aten.abs.default)
def absolute(x: Tensor) -> Tensor:
    """Return an unsigned tensor itself."""
    return x.clone() if x.dtype in _WIDE else NotImplemented


@decomposes(aten.any.default, aten.any.dim)
def any_element(x: Tensor, *axis: Any, **settings: Any) -> Tensor:
    """Return whether any element is not zero, as uint8 0 or 1; the lowering ors the bits of all elements."""
    return aten.any(x != 0, *axis, **settings).to(x.dtype) if x.dtype == torch.uint8 else NotImplemented


@decomposes(aten.all.default, aten.all.dim)
def all_elements(x: Tensor, *axis: Any, **settings: Any) -> Tensor:
    """Return whether no element is zero, as uint8 0 or 1; the lowering compares with the lowest bit."""
    return aten.all(x != 0, *axis, **settings).to(x.dtype) if x.dtype == torch.uint8 else NotImplemented


@decomposes(aten.bitwise_right_shift.Tensor)
def right_shift(x: Tensor, places: Tensor) -> Tensor:
    """Shift in zeros; the lowering repeats the highest bit."""
    if x.dtype != torch.uint8:
        return NotImplemented
    return aten.bitwise_right_shift.Tensor(x.int(), places.int()).to(torch.result_type(x, places))


def _extremum(operator: OpOverload[..., Any]) -> Decomposition:
    """Return the rule that computes an extremum in a wider signed type: the lowering starts at the signed ends."""

    @decomposes(operator)
    def rule(x: Tensor, *args: Any, **settings: Any) -> Any:
        if x.dtype not in _WIDE or x.dtype == torch.uint64:
            return NotImplemented
        result = operator(x.to(_WIDE[x.dtype]), *args, **settings)
        if isinstance(result, tuple | list):
            return result[0].to(x.dtype), result[1]
        return result if operator in _POSITIONS else result.to(x.dtype)

    return rule


_POSITIONS = (aten.argmax.default, aten.argmin.default)
_EXTREMA = (
    *(aten.max.dim, aten.min.dim, aten.max.default, aten.min.default, aten.amax.default, aten.amin.default),
    *_POSITIONS,
)
UNSIGNED = (full, full_like, absolute, any_element, all_elements, right_shift, *map(_extremum, _EXTREMA))
