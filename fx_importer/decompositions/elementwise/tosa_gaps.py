"""What the C++ lowerings to TOSA spell in a way that TOSA does not have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.indexing import shapes
from fx_importer.fx_graph.operators import aten

_MOST_AXES = 4
"""Of a result of indexing that C++ lowers within the six axes that TOSA has."""


@decomposes(aten.isinf.default)
def isinf(x: Tensor) -> Tensor:
    """C++ compares in float64."""
    return x.abs() == torch.full((), math.inf, dtype=x.dtype) if x.is_floating_point() else NotImplemented


@decomposes(aten.isnan.default)
def isnan(x: Tensor) -> Tensor:
    """Only what is not a number differs from itself."""
    return x != x if x.is_floating_point() else NotImplemented


@decomposes(aten.eq.Tensor)
def equal(a: Tensor, b: Tensor) -> Tensor:
    """TOSA compares numbers; two truths are equal where not one of them is true alone."""
    return torch.logical_not(torch.logical_xor(a, b)) if a.dtype is b.dtype is torch.bool else NotImplemented


@decomposes(aten.ne.Tensor)
def not_equal(a: Tensor, b: Tensor) -> Tensor:
    """As `equal`."""
    return torch.logical_xor(a, b) if a.dtype is b.dtype is torch.bool else NotImplemented


@decomposes(aten.add.Tensor)
def add(a: Tensor, b: Tensor | complex, *, alpha: complex = 1) -> Tensor:
    """As `multiply`: the sum of two truths is that either is true."""
    if isinstance(b, Tensor) and a.dtype is b.dtype is torch.bool and alpha == 1:
        return torch.logical_or(a, b)
    return NotImplemented


@decomposes(aten.mul.Tensor)
def multiply(a: Tensor, b: Tensor | complex) -> Tensor:
    """TOSA multiplies numbers; of truths, the product is that both are true."""
    if isinstance(b, Tensor) and a.dtype is b.dtype is torch.bool:
        return torch.logical_and(a, b)
    return NotImplemented


@decomposes(aten.index.Tensor)
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """With indices of many axes: C++ joins them along one axis more, of which there may be six."""
    given = [axis for axis, each in enumerate(indices) if each is not None]
    tensors = [each for each in indices if each is not None]
    if not given or given != list(range(given[0], given[-1] + 1)) or any(t.dtype is torch.bool for t in tensors):
        return NotImplemented
    shape = torch.broadcast_shapes(*(each.shape for each in tensors))
    result = (*x.shape[: given[0]], *shape, *x.shape[given[-1] + 1 :])
    if len(shape) < 2 or len(result) <= _MOST_AXES or not all(isinstance(size, int) for size in result):
        return NotImplemented
    flat = [each.expand(shape).reshape(-1) for each in tensors]
    return aten.index(x, [*indices[: given[0]], *flat]).reshape(result)


@decomposes(aten._to_copy.default)
def convert(x: Tensor, *, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    """One half precision to the other by way of float32, to which TOSA converts both."""
    halves = {x.dtype, dtype} == {torch.float16, torch.bfloat16}
    return x.float().to(dtype) if halves else NotImplemented


TOSA_GAPS = (isinf, isnan, equal, not_equal, add, multiply, shapes.pad, index, convert)
