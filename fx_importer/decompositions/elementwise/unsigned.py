"""The few operators whose C++ lowerings to StableHLO are wrong, or missing, for unsigned integers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

_WIDE = {torch.uint8: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}


@decomposes(aten.full.default)
def full(size: Sequence[int], value: float, *, dtype: torch.dtype | None = None, **settings: Any) -> Tensor:
    """A constant is made signed and converted; made unsigned, its literal and its type disagree."""
    if dtype not in _WIDE or not isinstance(value, int | float):
        return NotImplemented
    bits = int(value) - 2**64 if value >= 2**63 else int(value)
    return torch.full(size, bits, dtype=_WIDE[dtype]).to(dtype)


@decomposes(aten.full_like.default)
def full_like(x: Tensor, value: float, *, dtype: torch.dtype | None = None, **settings: Any) -> Tensor:
    """As `full`."""
    del settings
    return full(x.shape, value, dtype=dtype or x.dtype)


@decomposes(aten.abs.default)
def absolute(x: Tensor) -> Tensor:
    """A number without a sign is its own absolute value."""
    return x.clone() if x.dtype in _WIDE else NotImplemented


@decomposes(aten.any.default, aten.any.dim)
def any_element(x: Tensor, *axis: Any, **settings: Any) -> Tensor:
    """Of uint8, PyTorch returns a uint8 that is zero or one; the lowering returns the bits of all elements together."""
    return aten.any(x != 0, *axis, **settings).to(x.dtype) if x.dtype == torch.uint8 else NotImplemented


@decomposes(aten.bitwise_right_shift.Tensor)
def right_shift(x: Tensor, places: Tensor) -> Tensor:
    """The bits that come in are zeros; the lowering repeats the highest bit."""
    if x.dtype != torch.uint8:
        return NotImplemented
    return aten.bitwise_right_shift.Tensor(x.int(), places.int()).to(torch.result_type(x, places))


UNSIGNED = (full, full_like, absolute, any_element, right_shift)
