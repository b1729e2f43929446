"""Reads at indices of tensors with dynamic sizes, as ``tosa.gather``."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.emit.tosa_sizes import TosaSizeOps


def gather_to_tosa(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Gather along an axis: as the middle axis of ``[N, K, 1]``, where N are all others."""
    parts = _operands(op, emit)
    if parts is None:
        return None
    x, axis, indices, rank = parts
    for dim in range(rank):
        size, count = emit.shape(x)[dim], emit.shape(indices)[dim]
        if dim != axis and count is not None and size != count:
            x = emit.part(x, dim, 0, count)
    order = [dim for dim in range(rank) if dim != axis] + [axis]
    x, indices = emit.transpose(x, order), emit.transpose(indices, order)
    (*others, size), (*_, number) = emit.sizes(x), emit.sizes(indices)
    picked = emit.sizes(indices)
    number_of_others = emit.product_of(others)
    values = emit.reshape_to(x, [number_of_others, size, 1])
    places = emit.reshape_to(indices, [number_of_others, number])
    result = emit.reshape_to(emit.gather(values, places), picked)
    return emit.transpose(result, [order.index(dim) for dim in range(rank)])


def index_select_to_tosa(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Select along an axis: as the middle axis of ``[1, K, C]``, where C are all others."""
    parts = _operands(op, emit)
    if parts is None:
        return None
    x, axis, indices, rank = parts
    order = [axis, *(dim for dim in range(rank) if dim != axis)]
    x = emit.transpose(x, order)
    (size, *others) = emit.sizes(x)
    rows = _rows(emit, x, size, others, indices, emit.sizes(indices) or [1])
    return emit.transpose(rows, [order.index(dim) for dim in range(rank)])


def embedding_to_tosa(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Read a row of the table for each index, of any rank."""
    x, indices = emit.builtin(op.operands[0]), emit.builtin(op.operands[1])
    if x is None or indices is None:
        return None
    (size, *others) = emit.sizes(x)
    return _rows(emit, x, size, others, indices, emit.sizes(indices))


def _operands(op: ir.Operation, emit: TosaSizeOps) -> tuple[ir.Value, int, ir.Value, int] | None:
    """Return the tensor, the axis, the indices and the rank of an operator that reads along an axis."""
    x, axis, indices = emit.builtin(op.operands[0]), constant_of(op.operands[1]), emit.builtin(op.operands[2])
    if x is None or axis is None or indices is None or not (rank := len(emit.shape(x))):
        return None
    return x, axis % rank, indices, rank


def _rows(
    emit: TosaSizeOps, x: ir.Value, size: Size, others: Sequence[Size], indices: ir.Value, picked: Sequence[Size]
) -> ir.Value:
    """Return the rows of ``x`` at ``indices``, in the sizes ``picked`` followed by the sizes of a row."""
    values = emit.reshape_to(x, [1, size, emit.product_of(others)])
    places = emit.reshape_to(indices, [1, emit.product_of(picked)])
    return emit.reshape_to(emit.gather(values, places), [*picked, *others])
