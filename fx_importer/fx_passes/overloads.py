"""One overload and argument form for operators that have several."""

from __future__ import annotations

from torch import SymInt, fx

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten, prims
from fx_importer.fx_passes.fx_pass import node_pass
from fx_importer.fx_passes.node_rewriting import NodeRewrites, same_size, same_type
from fx_importer.fx_passes.sizes.dynamic_axes import merge_axes, repeat_by_dynamic_count


def _reshape(node: fx.Node) -> fx.Node | None:
    """Rewrite a view as a reshape with static sizes as integers and, if there is only one, the dynamic size as -1.

    Once copies are removed as identities, strides may no longer allow a view. An inferred size needs no shape
    arithmetic, which TOSA lacks.
    """
    node.target = aten.reshape.default
    merged = merge_axes(node)
    if merged is not node.args[0] and same_type(value_of(merged), value_of(node)):
        return merged
    node.args = (merged, *node.args[1:])
    sizes = value_of(node).shape
    symbolic = [axis for axis, size in enumerate(sizes) if isinstance(size, SymInt)]
    if not symbolic:
        node.args = (node.args[0], list(sizes))
    elif len(symbolic) == 1 and all(isinstance(size, SymInt) or size for size in sizes):
        node.args = (node.args[0], [-1 if axis in symbolic else size for axis, size in enumerate(sizes)])
    return None


def _keep_sizes(node: fx.Node) -> fx.Node | None:
    """Write the unchanged sizes of an expand as -1; whether it is implicit changes nothing."""
    old, new = value_of(node.args[0]).shape, value_of(node).shape
    sizes = node.args[1]
    assert isinstance(sizes, list | tuple)
    added = len(new) - len(old)
    kept = [axis >= added and same_size(old[axis - added], new[axis]) for axis in range(len(new))]
    node.args, node.kwargs = (node.args[0], [-1 if keep else size for keep, size in zip(kept, sizes, strict=True)]), {}
    return None


def _convert(node: fx.Node) -> fx.Node | None:
    """Rewrite a copy to another dtype as a conversion; device and layout are ignored."""
    old, new = value_of(node.args[0]), value_of(node)
    return emit(node, prims.convert_element_type.default, node.args[0], new.dtype) if old.dtype != new.dtype else None


def _squeeze_one_by_one(node: fx.Node) -> fx.Node | None:
    axes = node.args[1]
    assert isinstance(axes, list | tuple)
    result = node.args[0]
    assert isinstance(result, fx.Node)
    for axis in sorted((axis % value_of(result).dim() for axis in axes if isinstance(axis, int)), reverse=True):
        result = emit(node, aten.squeeze.dim, result, axis)
    return result


def _squeeze_static_ones(node: fx.Node) -> fx.Node | None:
    """Drop the axes of static size 1 one by one: C++ infers all dynamic sizes of a reshape to TOSA."""
    result = node.args[0]
    assert isinstance(result, fx.Node)
    if sum(isinstance(size, SymInt) for size in value_of(node).shape) < 2:
        return None
    for axis, size in reversed(list(enumerate(value_of(result).shape))):
        if isinstance(size, int) and size == 1:
            result = emit(node, aten.squeeze.dim, result, axis)
    return result


def _clamp_bounds(node: fx.Node) -> fx.Node | None:
    """Clamp start and end of a slice to a static size.

    An open end is 2^63 - 1 in the graph, and the C++ lowering of a strided write to StableHLO would create an index for
    each position up to it.
    """
    first = 1 if node.target is aten.slice.Tensor else 2
    axis, start, end, step = [*node.args[first:], *(0, None, None, 1)[len(node.args) - first :]]
    size = value_of(node.args[0]).shape[axis]
    bounds = (start, end, step)
    if not node.kwargs and isinstance(size, int) and all(bound is None or isinstance(bound, int) for bound in bounds):
        node.args = (*node.args[:first], axis, *slice(*bounds).indices(size))
    return None


def _slice_scatter(node: fx.Node) -> fx.Node | None:
    """Clamp the bounds of a write, as of a slice, and convert what is written to the dtype of the tensor."""
    x, values, *rest = node.args
    dtype = value_of(node).dtype
    if value_of(values).dtype != dtype:
        node.args = (x, emit(node, prims.convert_element_type.default, values, dtype), *rest)
    return _clamp_bounds(node)


def _count_axis_from_front(node: fx.Node) -> fx.Node | None:
    """Wrap a negative axis: some C++ lowerings do not, and write out of bounds."""
    axis = node.args[1]
    if isinstance(axis, int) and axis < 0:
        node.args = (node.args[0], axis + max(value_of(node.args[0]).dim(), 1), *node.args[2:])
    return None


def _convert_values(node: fx.Node) -> fx.Node | None:
    """Convert what is written to the dtype of the tensor: decompositions of other writes leave both."""
    dtype = value_of(node).dtype
    x, indices, values, *accumulate = node.args
    if value_of(values).dtype != dtype:
        values = emit(node, prims.convert_element_type.default, values, dtype)
        node.args = (x, indices, values, *accumulate)
    return None


def _expand_equal_branch(node: fx.Node) -> fx.Node | None:
    """Expand a branch if both are equal and smaller: torch-mlir folds ``where(c, x, x)`` to ``x`` of any shape."""
    condition, branch, other = node.args
    if not isinstance(branch, fx.Node) or not isinstance(other, fx.Node) or not _is_same_call(branch, other):
        return None
    old, new = (value_of(value).shape for value in (branch, node))
    if not same_type(value_of(branch), value_of(node)):
        sizes: list[int | fx.Node] = []
        for axis, size in enumerate(new, start=-len(new)):
            if axis >= -len(old) and same_size(old[axis], size):
                sizes.append(-1)
            else:
                sizes.append(size if isinstance(size, int) else emit(node, aten.sym_size.int, condition, axis))
        node.args = (condition, emit(node, aten.expand.default, branch, sizes), other)
    return None


def _is_same_call(a: fx.Node, b: fx.Node) -> bool:
    """Return whether common subexpression elimination, later, makes one node of two."""
    return a is b or (a.op == "call_function" and (a.target, a.args, a.kwargs) == (b.target, b.args, b.kwargs))


_ALONG_INDICES = (
    *(aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce, aten.scatter_add.default),
    *(aten.scatter_reduce.two, aten.gather.default, aten.index_select.default, aten.index_copy.default),
    *(aten.index_add.default, aten.index_fill.int_Scalar, aten.index_fill.int_Tensor, aten.index_reduce.default),
)

_REWRITES: NodeRewrites = {
    **dict.fromkeys(_ALONG_INDICES, _count_axis_from_front),
    **dict.fromkeys((aten.view.default, aten.reshape.default, aten._unsafe_view.default), _reshape),
    aten.repeat.default: repeat_by_dynamic_count,
    aten.expand.default: _keep_sizes,
    aten.where.self: _expand_equal_branch,
    aten.index_put.default: _convert_values,
    aten._to_copy.default: _convert,
    prims.squeeze.default: _squeeze_one_by_one,
    aten.squeeze.default: _squeeze_static_ones,
    aten.slice.Tensor: _clamp_bounds,
    aten.slice_scatter.default: _slice_scatter,
}


UNIFY_OVERLOADS = node_pass("unify-overloads", _REWRITES)
