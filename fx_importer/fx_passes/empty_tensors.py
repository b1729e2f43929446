"""Folding of empty tensors, on which lowerings fail or divide by zero."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import is_empty
from fx_importer.fx_passes.fx_pass import functional_graph_pass
from fx_importer.fx_passes.node_rewriting import arguments_of, same_type

_PRODUCTS = (aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default)
"""Operators whose result is zero where they sum over an axis of size 0."""

_WRITES = {
    aten.index_put.default: "indices",
    aten.slice_scatter.default: "src",
    **dict.fromkeys(
        (
            *(aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce),
            *(aten.scatter_add.default, aten.scatter_reduce.two),
            *(aten.index_copy.default, aten.index_add.default),
            *(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor),
        ),
        "index",
    ),
}
"""The argument with the indices or the elements of a write: nothing is written if it is empty."""


def fold_empty(graph: fx.Graph) -> None:
    """Replace every statically empty tensor of ``graph``, and products over no elements, by constants."""
    for node in graph.nodes:
        if node.target is aten.cat.default:
            _drop_empty_operands(node)
            _fold_empty_axis(node)
        if node.target in _PRODUCTS and _is_empty_product(node):
            node.replace_all_uses_with(_empty_constant(node, value_of(node), _product_sizes(node)))  # StableHLO aborts
        elif node.target is not aten.full.default and _is_computed(node) and is_empty(value_of(node)):
            node.replace_all_uses_with(_empty_constant(node, value_of(node)))
        elif node.target is aten.slice.Tensor and _is_empty_part(node):
            # The C++ lowering to StableHLO takes an end of 0 for none, where other sizes are dynamic.
            node.replace_all_uses_with(_empty_constant(node, value_of(node), _sizes(node)))
        elif node.target is aten.reshape.default and 0 in node.args[1] and -1 not in node.args[1]:
            # Other sizes are dynamic; the C++ lowering divides by the static ones.
            node.replace_all_uses_with(_empty_constant(node, value_of(node), node.args[1]))
        elif (operand := _equal_operand(node)) is not None:
            node.replace_all_uses_with(operand)
        elif node.target in _WRITES and _writes_nothing(node):
            node.replace_all_uses_with(node.args[0])  # iree-compile divides by zero
        elif node.op == "placeholder" and is_empty(value_of(node)):
            for user in [user for user in node.users if user.op != "output"]:
                user.replace_input_with(node, _empty_constant(user, value_of(node)))


def _writes_nothing(node: fx.Node) -> bool:
    """Return whether the result is the tensor that is written to."""
    places: Any = arguments_of(node)[_WRITES[node.target]]
    listed = places if isinstance(places, list | tuple) else [places]
    written: Any = node.args[0]
    return same_type(value_of(written), value_of(node)) and any(
        isinstance(place, fx.Node) and is_empty(value_of(place)) for place in listed
    )


def _empty_constant(before: fx.Node, value: Tensor, sizes: Any = None) -> fx.Node:
    return emit(before, aten.full.default, list(value.shape) if sizes is None else sizes, 0, dtype=value.dtype)


def _equal_operand(node: fx.Node) -> fx.Node | None:
    """Return an operand of a pointwise operator that equals the result: of the same type, without elements."""
    if not isinstance(node.target, OpOverload) or torch.Tag.pointwise not in node.target.tags:
        return None
    result = value_of(node)
    if not isinstance(result, Tensor) or 0 not in [size for size in result.shape if type(size) is int]:
        return None  # other sizes are dynamic; TOSA has no such types
    return next((x for x in node.all_input_nodes if same_type(value_of(x), result)), None)


def _is_empty_part(part: fx.Node) -> bool:
    """Return whether a slice along an axis whose size is static afterwards has no elements."""
    shape, axis = value_of(part).shape, part.args[1] if len(part.args) > 1 else 0
    return isinstance(shape[axis], int) and 0 in [size for size in shape if isinstance(size, int)]


def _sizes(part: fx.Node) -> list[Any]:
    """Return the sizes of a slice: those that are dynamic are of its operand."""
    whole, shape = part.args[0], value_of(part).shape
    return [size if isinstance(size, int) else emit(part, aten.sym_size.int, whole, i) for i, size in enumerate(shape)]


def _drop_empty_operands(cat: fx.Node) -> None:
    """Drop operands of ``cat`` that add nothing along its axis, unless one of them determines its dtype."""
    tensors, *axis = cat.args
    kept = [tensor for tensor in tensors if not _adds_nothing(value_of(tensor), *axis)]  # type: ignore[union-attr, arg-type]
    if any(value_of(operand).dtype == value_of(cat).dtype for operand in kept):
        cat.args = (kept, *axis)


def _adds_nothing(x: Tensor, axis: int = 0) -> bool:
    """Return whether ``x`` has no elements along ``axis``: empty along another one, it adds to the sizes."""
    along = x.shape[axis if x.dim() > 1 else 0] if x.dim() else 1
    return isinstance(along, int) and along == 0


def _fold_empty_axis(cat: fx.Node) -> None:
    """Replace a concatenation along an axis where all operands have size 0, by an operand if other sizes are
    dynamic."""
    (first, *others), *axis = cat.args  # type: ignore[misc]
    assert isinstance(first, fx.Node)
    result, operand = value_of(cat), value_of(first)
    size = result.shape[axis[0] if axis else 0]
    if not isinstance(size, int) or size or not others or operand.dim() != result.dim():
        return
    converted = emit(cat, aten._to_copy.default, first, dtype=result.dtype) if operand.dtype != result.dtype else first
    cat.replace_all_uses_with(converted)


def _is_computed(node: fx.Node) -> bool:
    """Return whether an ATen operator computes ``node``. An effect token is empty too, and must stay."""
    source = node.args[0] if node.target is operator.getitem else node
    return isinstance(source, fx.Node) and isinstance(source.target, OpOverload) and source.target.namespace == "aten"


def _is_empty_product(node: fx.Node) -> bool:
    """Return whether a product sums over an axis of the static size 0."""
    left: Any = node.args[0]
    size = value_of(left).shape[-1]
    return isinstance(size, int) and size == 0


def _product_sizes(product: fx.Node) -> list[Any]:
    """Return the sizes of a matrix product: all but the last are of its left operand, dynamic ones too."""
    left, right = product.args
    rank = value_of(left).dim()
    return [
        emit(product, aten.sym_size.int, left if i < rank - 1 else right, i) if not isinstance(size, int) else size
        for i, size in enumerate(value_of(product).shape)
    ]


FOLD_EMPTY_TENSORS = functional_graph_pass("fold-empty-tensors", fold_empty)
