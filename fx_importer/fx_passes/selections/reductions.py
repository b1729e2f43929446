"""Reductions along selected axes: elements that are not selected are neutral."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.node_rewriting import arguments_of
from fx_importer.fx_passes.selections.reads import Result
from fx_importer.fx_passes.selections.selected import Selections

_INDEX = torch.int64
Neutral = Callable[[torch.dtype], float]


def _lowest(dtype: torch.dtype) -> float:
    if dtype is torch.bool:
        return 0
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> float:
    if dtype is torch.bool:
        return 1
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def _zero(dtype: torch.dtype) -> float:
    return 0


def _one(dtype: torch.dtype) -> float:
    return 1


def _dims(node: fx.Node, position: int = 1) -> list[int]:
    """Return the axes that ``node`` reduces; all if none are listed."""
    rank = value_of(node.args[0]).dim()
    dims: Any = node.args[position] if len(node.args) > position else node.kwargs.get("dim")
    if dims is None or dims == []:
        return list(range(rank))
    return [dim % max(rank, 1) for dim in (dims if isinstance(dims, list | tuple) else [dims])]


def reduction(neutral: Neutral, place: int | None = 1) -> Callable[[fx.Node, Selections], Result]:
    """Return the rule of a reduction along the axes in its positional argument ``place``; along all if it is None."""

    def rule(node: fx.Node, state: Selections) -> Result:
        x: Any = node.args[0]
        if list(state.among((node.args[1:], node.kwargs))):
            return None
        dims = list(range(value_of(x).dim())) if place is None else _dims(node, place)
        filled = state.filled(node, x, neutral(value_of(x).dtype), dims)
        return state.recomputed(node, filled, *node.args[1:], **node.kwargs)

    return rule


def extremum(node: fx.Node, state: Selections) -> Result:
    """Return extrema with their indices, or the least and the largest element, of selected elements that come first.

    What is not selected repeats the first element, before which no equal one comes. A pass checks that there is one.
    """
    arguments = arguments_of(node)
    x, dim = arguments.pop("self"), arguments.get("dim")
    rank, selected, whole = value_of(x).dim(), state.axes(x), state.whole(x)
    for axis in [*range(rank)] if dim is None else [dim % rank]:
        if axis not in selected:
            continue
        if not selected[axis].is_prefix or (dim is None and axis and node.target is not aten.aminmax.default):
            return None  # the index of an element counts those before it
        first = emit(node, aten.index_select.default, whole, axis, emit(node, aten.zeros.default, [1], dtype=_INDEX))
        whole = emit(node, aten.where.self, selected[axis].valid(node, axis, rank), whole, first)
    return state.recomputed(node, whole, *node.args[1:], **node.kwargs)


def _count(node: fx.Node, state: Selections, dims: Sequence[int]) -> Any:
    """Return the number of elements that ``node`` reduces along ``dims``, a number or int64 of rank 0."""
    x: Any = node.args[0]
    selected, number = state.axes(x), 1
    count: Any = None
    for axis in dims:
        if axis in selected:
            part = selected[axis].count(node)
            count = part if count is None else emit(node, aten.mul.Tensor, count, part)
        elif type(size := value_of(x).shape[axis]) is int:
            number *= size
        else:
            part = emit(node, aten.scalar_tensor.default, emit(node, aten.sym_size.int, x, axis), dtype=torch.int64)
            count = part if count is None else emit(node, aten.mul.Tensor, count, part)
    return count if number == 1 else emit(node, aten.mul.Tensor, count, number)


def mean(node: fx.Node, state: Selections) -> Result:
    """Divide the sum of the selected elements by their number."""
    x: Any = node.args[0]
    whole_graph = node.target is aten.mean.default
    dims = list(range(value_of(x).dim())) if whole_graph else _dims(node)
    if not state.axes(x).keys() & set(dims):
        return state.recomputed(node)
    keep = bool(node.args[2]) if not whole_graph and len(node.args) > 2 else bool(node.kwargs.get("keepdim"))
    dtype = value_of(node).dtype
    wide = accumulated(dtype)
    filled = state.filled(node, x, 0, dims)
    total = emit(node, aten.sum.dim_IntList, filled, dims, keep, dtype=wide)
    result = emit(node, aten.div.Tensor, total, _count(node, state, dims))
    return in_dtype_of(node, result, state)


def accumulated(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which PyTorch adds elements of ``dtype``, a floating-point or complex one."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def in_dtype_of(node: fx.Node, whole: fx.Node, state: Selections) -> Result:
    """Return ``whole`` as all elements of ``node``, in its dtype."""
    dtype = value_of(node).dtype
    whole = whole if value_of(whole).dtype == dtype else emit(node, aten._to_copy.default, whole, dtype=dtype)
    return state.with_whole(node, whole)


def _variance_arguments(node: fx.Node) -> tuple[list[int], float, bool]:
    """Return the axes, the correction, and whether axes are kept, of any overload of ``var`` or ``std``."""
    if node.target in (aten.var.correction, aten.std.correction):
        correction: Any = node.kwargs.get("correction")
        return _dims(node), 1 if correction is None else correction, bool(node.kwargs.get("keepdim"))
    rest: Any = node.args[1:]
    if node.target in (aten.var.default, aten.std.default):
        dims, rest = list(range(value_of(node.args[0]).dim())), [None, *rest]
    else:
        dims = _dims(node)
    unbiased: Any = rest[1] if len(rest) > 1 else node.kwargs.get("unbiased", True)
    return dims, int(unbiased), bool(rest[2] if len(rest) > 2 else node.kwargs.get("keepdim"))


def variance(node: fx.Node, state: Selections) -> Result:
    """Return ``var`` or ``std`` of the selected elements, of their deviations from the mean."""
    x: Any = node.args[0]
    dims, correction, keep = _variance_arguments(node)
    if not state.axes(x).keys() & set(dims):
        return state.recomputed(node)
    dtype = value_of(x).dtype
    if dtype.is_complex:
        return None
    wide = accumulated(dtype)
    count = _count(node, state, dims)
    total = emit(node, aten.sum.dim_IntList, state.filled(node, x, 0, dims), dims, True, dtype=wide)
    whole = emit(node, aten._to_copy.default, state.whole(x), dtype=wide)
    apart = emit(node, aten.sub.Tensor, whole, emit(node, aten.div.Tensor, total, count))
    for axis, selection in state.axes(x).items():
        if axis in dims:
            zero = emit(node, aten.full.default, [], 0, dtype=wide)
            valid = selection.valid(node, axis, value_of(x).dim())
            apart = emit(node, aten.where.self, valid, apart, zero)
    squares = emit(node, aten.mul.Tensor, apart, apart)
    summed = emit(node, aten.sum.dim_IntList, squares, dims, keep)
    freedom = emit(node, aten.clamp.default, emit(node, aten.sub.Tensor, count, correction), 0)
    result = emit(node, aten.div.Tensor, summed, freedom)
    if node.target in (aten.std.correction, aten.std.dim, aten.std.default):
        result = emit(node, aten.sqrt.default, result)
    return in_dtype_of(node, result, state)


def softmax(node: fx.Node, state: Selections) -> Result:
    """Leave elements that are not selected out of the sum, along the axis of a softmax."""
    x, dim = node.args[:2]
    filled = state.filled(node, x, -math.inf, [dim % max(value_of(x).dim(), 1)])
    return state.recomputed(node, filled, *node.args[1:], **node.kwargs)


def vector_norm(node: fx.Node, state: Selections) -> Result:
    """Return the norm of a positive order, to which zeros add nothing."""
    order = node.args[1] if len(node.args) > 1 else 2
    if not isinstance(order, int | float) or order <= 0:
        return None
    return reduction(_zero, 2)(node, state)


REDUCTIONS: dict[Any, Callable[[fx.Node, Selections], Result]] = {
    **dict.fromkeys((aten.sum.dim_IntList, aten.nansum.default, aten.count_nonzero.dim_IntList), reduction(_zero)),
    **dict.fromkeys((aten.sum.default, aten.count_nonzero.default), reduction(_zero, None)),
    **dict.fromkeys((aten.any.dim, aten.any.dims, aten.cumsum.default), reduction(_zero)),
    **dict.fromkeys((aten.all.dim, aten.all.dims, aten.prod.dim_int, aten.cumprod.default), reduction(_one)),
    aten.any.default: reduction(_zero, None),
    **dict.fromkeys((aten.all.default, aten.prod.default), reduction(_one, None)),
    aten.amax.default: reduction(_lowest),
    aten.max.default: reduction(_lowest, None),
    aten.amin.default: reduction(_highest),
    aten.min.default: reduction(_highest, None),
    aten.logsumexp.default: reduction(_lowest),
    **dict.fromkeys((aten.mean.default, aten.mean.dim), mean),
    **dict.fromkeys((aten.var.correction, aten.var.dim, aten.var.default), variance),
    **dict.fromkeys((aten.std.correction, aten.std.dim, aten.std.default), variance),
    **dict.fromkeys(
        (aten.softmax.int, aten._softmax.default, aten.log_softmax.int, aten._log_softmax.default), softmax
    ),
    **dict.fromkeys((aten.max.dim, aten.min.dim, aten.aminmax.default), extremum),
    **dict.fromkeys((aten.argmax.default, aten.argmin.default), extremum),
    aten.linalg_vector_norm.default: vector_norm,
}
