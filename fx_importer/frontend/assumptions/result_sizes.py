"""Sizes that depend on values: counted on tensors, where torch records the example's size, or read from them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from fx_importer.fx_graph.aliasing import graphs_of
from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.operators import aten

Emit = Callable[..., fx.Node]


def source_of_size(size: fx.Node) -> fx.Node | None:
    """Return the call whose result ``size`` is a size of; None for sizes of inputs and for other numbers."""
    if size.target is not aten.sym_size.int:
        return None
    (source,) = size.all_input_nodes
    if source.target is operator.getitem:
        (source,) = source.all_input_nodes
    return source if source.op == "call_function" else None


def has_read_sizes(program: ExportedProgram) -> bool:
    """Return whether sizes in ``program`` are integers that it reads from tensors, which nothing bounds."""
    nodes = [node for graph in graphs_of(program.graph_module) for node in graph.nodes if "val" in node.meta]
    read = {symbol for node in nodes if node.target in _READS for symbol in _symbols(value_of(node))}
    return bool(read) and any(
        read & _symbols(leaf)
        for node in nodes
        for leaf in tree_leaves(value_of(node))
        if isinstance(leaf, torch.Tensor)
    )


def _symbols(value: Any) -> set[sympy.Symbol]:
    numbers = value.shape if isinstance(value, torch.Tensor) else (value,)
    return {symbol for size in numbers if isinstance(size, torch.SymInt) for symbol in size.node.expr.free_symbols}


_READS = (aten.item.default, aten._local_scalar_dense.default, aten.bincount.default)


def counted_size(size: fx.Node, emit: Emit) -> fx.Node | None:
    """Return ``size`` as an int64 tensor of rank 0, computed of the values it depends on; None if no rule does."""
    source = source_of_size(size)
    rule = _RULES.get(source.target) if source is not None else None
    if source is None or rule is None:
        return None
    dim = size.args[1]
    values = value_of(size.args[0])
    return rule(emit, source, dim % values.dim() if isinstance(dim, int) and values.dim() else dim)


def _argument(node: fx.Node, name: str, default: Any = None) -> Any:
    """Return an argument of a call by its name in the schema."""
    target: Any = node.target
    names = [argument.name for argument in target._schema.arguments]
    at = names.index(name)
    return node.args[at] if at < len(node.args) else node.kwargs.get(name, default)


def _number_of_nonzeros(emit: Emit, tensor: fx.Node) -> fx.Node:
    return emit(aten.sum.default, emit(aten.ne.Scalar, tensor, 0))


def _listed(emit: Emit, call: fx.Node, dim: Any) -> fx.Node | None:
    return _number_of_nonzeros(emit, call.args[0]) if dim == 0 else None  # type: ignore[arg-type]


def _selected(emit: Emit, call: fx.Node, dim: Any) -> fx.Node | None:
    """Count the elements of the only mask of an index."""
    indices: Any = call.args[1]
    masks = [index for index in indices if isinstance(index, fx.Node) and value_of(index).dtype in _MASKS]
    start = [isinstance(index, fx.Node) for index in indices].index(True)
    return _number_of_nonzeros(emit, masks[0]) if len(masks) == 1 and dim == start else None


_MASKS = (torch.bool, torch.uint8)


def _mask_selected(emit: Emit, call: fx.Node, dim: Any) -> fx.Node:
    tensor, mask = call.args
    return _number_of_nonzeros(emit, emit(aten.logical_and.default, mask, emit(aten.ones_like.default, tensor)))


def _distinct(emit: Emit, call: fx.Node, dim: Any) -> fx.Node:
    """Count the sorted elements that differ from the one before."""
    x: Any = emit(aten.reshape.default, call.args[0], [-1])
    if value_of(x).dtype is torch.bool:
        x = emit(aten._to_copy.default, x, dtype=torch.int32)
    return _number_of_runs(emit, emit(operator.getitem, emit(aten.sort.default, x), 0), 0)


def _runs(emit: Emit, call: fx.Node, dim: Any) -> fx.Node:
    x: Any = call.args[0]
    axis = _argument(call, "dim")
    if axis is None or not value_of(x).dim():
        return _number_of_runs(emit, emit(aten.reshape.default, x, [-1]), 0)
    return _number_of_runs(emit, x, axis % value_of(x).dim())


def _number_of_runs(emit: Emit, x: fx.Node, axis: int) -> fx.Node:
    """Return the number of slices along ``axis`` that are first or differ from the one before."""
    shape = value_of(x).shape
    if shape[axis] == 0:
        return emit(aten.full.default, [], 0, dtype=torch.int64)
    before, after = emit(aten.slice.Tensor, x, axis, 0, -1), emit(aten.slice.Tensor, x, axis, 1)
    changes = emit(aten.ne.Tensor, after, before)
    others = [other for other in range(len(shape)) if other != axis]
    if others:
        changes = emit(aten.any.dims, changes, others)
    return emit(aten.add.Scalar, emit(aten.sum.default, changes), 1)


def _distinct_slices(emit: Emit, call: fx.Node, dim: Any) -> fx.Node:
    """Count the slices that equal none before them."""
    x: Any = call.args[0]
    axis = _argument(call, "dim") % value_of(x).dim()
    first = emit(aten.transpose.int, x, 0, axis)
    equal = emit(aten.eq.Tensor, emit(aten.unsqueeze.default, first, 0), emit(aten.unsqueeze.default, first, 1))
    if value_of(x).dim() > 1:
        equal = emit(aten.logical_not.default, equal)
        equal = emit(aten.any.dims, equal, [*range(2, value_of(x).dim() + 1)])
        equal = emit(aten.logical_not.default, equal)
    numbers = emit(aten._to_copy.default, equal, dtype=torch.int64)
    repeated = emit(aten.amax.default, emit(aten.tril.default, numbers, -1), [1])
    return emit(aten.sum.default, emit(aten.eq.Scalar, repeated, 0))


def _counted(emit: Emit, call: fx.Node, dim: Any) -> fx.Node | None:
    """Return the number of integers from 0 to the largest one, and at least ``minlength``."""
    (numbers, least) = _argument(call, "self"), _argument(call, "minlength", 0)
    if not all(isinstance(size, int) and size for size in value_of(numbers).shape) or not isinstance(least, int):
        return None
    wide = emit(aten._to_copy.default, emit(aten.reshape.default, numbers, [-1]), dtype=torch.int64)
    largest = emit(aten.clamp_max.default, emit(aten.amax.default, wide, [0]), _MOST_BINS - 1)
    return emit(aten.clamp_min.default, emit(aten.add.Scalar, largest, 1), least)


def _repeated(emit: Emit, call: fx.Node, dim: Any) -> fx.Node:
    repeats = _argument(call, "repeats")
    total = emit(aten.sum.default, emit(aten._to_copy.default, repeats, dtype=torch.int64))
    tensor = None if call.target is aten.repeat_interleave.Tensor else _argument(call, "self")
    if tensor is None or value_of(repeats).numel() != 1:
        return total
    axis = _argument(call, "dim")
    shape = value_of(tensor).shape
    return emit(aten.mul.Scalar, total, shape.numel() if axis is None else shape[axis])


_MOST_BINS = 2**31 - 1
"""Fits in 32 bits, which TOSA counts in; eager would need 16 GB for more."""
_RULES: Mapping[Any, Callable[[Emit, fx.Node, Any], fx.Node | None]] = {
    **dict.fromkeys(
        (aten.nonzero.default, aten.nonzero_numpy.default, aten.where.default, aten.argwhere.default), _listed
    ),
    **dict.fromkeys((aten._unique.default, aten._unique2.default), _distinct),
    **dict.fromkeys((aten.unique_consecutive.default, aten.unique_dim_consecutive.default), _runs),
    aten.unique_dim.default: _distinct_slices,
    **dict.fromkeys((aten.repeat_interleave.Tensor, aten.repeat_interleave.self_Tensor), _repeated),
    aten.index.Tensor: _selected,
    aten.masked_select.default: _mask_selected,
    aten.bincount.default: _counted,
}
"""How to count the size of a result, by the operator."""
COUNTED = frozenset(_RULES)
"""The operators whose results have sizes that are counted."""
