"""Decompositions of strided views: diagonals and sliding windows as gathers, ``diagonal_scatter`` as a scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import are_static, is_empty, is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten.reshape.default, aten.view.default)
def reshape_of_empty(x: Tensor, shape: Sequence[int]) -> Any:
    """Return an empty tensor of dynamic shape; the C++ lowering divides by its number of elements."""
    if not is_empty(x) or are_static(*shape) or -1 in [size for size in shape if isinstance(size, int)]:
        return NotImplemented
    return torch.full(shape, 0, dtype=x.dtype)


def _diagonal_indices(x: Tensor, offset: int, dim1: int, dim2: int) -> tuple[Tensor, Tensor, list[int]]:
    """Return the indices along both axes, and the permutation that puts these two first."""
    rest = [axis for axis in range(x.dim()) if axis not in (dim1 % x.dim(), dim2 % x.dim())]
    row, column = max(-offset, 0), max(offset, 0)
    length = torch.sym_max(torch.sym_min(x.shape[dim1] - row, x.shape[dim2] - column), 0)
    steps = torch.arange(length, device=x.device)
    return steps + row, steps + column, [dim1 % x.dim(), dim2 % x.dim(), *rest]


@decomposes(aten.diagonal.default)
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return the elements whose indices along two axes differ by ``offset``, along a new last axis."""
    rows, columns, order = _diagonal_indices(x, offset, dim1, dim2)
    return x.permute(order)[rows, columns].movedim(0, -1)


@decomposes(aten.diagonal_scatter.default)
def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return ``x`` with its diagonal replaced by ``source``."""
    rows, columns, order = _diagonal_indices(x, offset, dim1, dim2)
    result = torch.index_put(x.permute(order), (rows, columns), source.movedim(-1, 0))
    return result.permute([order.index(axis) for axis in range(x.dim())])


@decomposes(aten.unfold.default)
def unfold(x: Tensor, dim: int, size: int, step: int) -> Any:
    """Return windows of ``size`` elements along ``dim``, ``step`` apart, with the elements along a new last axis."""
    if x.dim() == 0:
        return x.reshape(1)[:size]
    count = (x.shape[dim] - size) // step + 1
    positions = torch.arange(count, device=x.device).unsqueeze(1) * step + torch.arange(size, device=x.device)
    windows = x.index_select(dim, positions.flatten()).unflatten(dim, (count, size))
    return windows.movedim(dim % x.dim() + 1, -1)


STRIDED_VIEWS = (diagonal, unfold)


@decomposes(aten.slice_scatter.default)
def slice_scatter_beside_dynamic_axes(
    x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """Read ``src`` where a place along ``dim``, an axis of static size, is in the slice, if another axis is dynamic."""
    bounds = (start, end, step)
    if (
        is_static(x)
        or not are_static(x.shape[dim])
        or not all(bound is None or isinstance(bound, int) for bound in bounds)
    ):
        return NotImplemented
    size = x.shape[dim]
    inside = range(size)[slice(start, end, step)]
    if not inside:
        return x.clone()
    places = torch.arange(size)
    source = torch.clamp(torch.div(places - inside.start, step, rounding_mode="floor"), 0, len(inside) - 1)
    mask = (places >= inside.start) & (places <= inside[-1]) & ((places - inside.start) % step == 0)
    mask = mask.reshape([size if axis == dim % x.dim() else 1 for axis in range(x.dim())])
    return torch.where(mask, src.index_select(dim, source), x)


@decomposes(aten.slice_scatter.default)
def slice_scatter_along_dynamic_axis(
    x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """Read ``src`` where a place along ``dim``, an axis of dynamic size, is one of the slice; no match for none."""
    size, count = x.shape[dim], src.shape[dim]
    if are_static(size) or not all(bound is None or isinstance(bound, int) for bound in (start, step)) or is_empty(src):
        return NotImplemented
    first = 0 if start is None else start if start >= 0 else torch.sym_max(size + start, 0)
    steps = torch.arange(size) - first
    source = torch.div(steps, step, rounding_mode="floor")
    mask = (source >= 0) & (source < count) & (torch.remainder(steps, step) == 0)
    mask = mask.reshape([size if axis == dim % x.dim() else 1 for axis in range(x.dim())])
    return torch.where(mask, src.to(x.dtype).index_select(dim, torch.clamp(source, 0, count - 1)), x)


@decomposes(aten.slice_scatter.default)
def slice_scatter_with_step(x: Tensor, src: Tensor, dim: int = 0, *bounds: int | None) -> Any:
    """As `slice_scatter_along_dynamic_axis`, if there is a step."""
    return slice_scatter_along_dynamic_axis.rule(x, src, dim, *bounds) if len(bounds) == 3 else NotImplemented
