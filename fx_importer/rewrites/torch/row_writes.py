"""Writes of whole rows along one axis, as a static cache is written: ``x[:, :, rows] = values``.

``torch-decompose-complex-ops`` gives ``index_put`` an index for each axis; all but one count through their axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.types import TorchTensor

INDEX_PUTS = ("torch.aten.index_put.hacked_twin",)
"""The operators that may be writes of rows, as the torch backend form has them."""

_ARANGE = "torch.aten.arange.start_step"
_BROADCASTS = ("torch.aten.broadcast_to", "torch.aten.expand")


@dataclass(frozen=True)
class RowWrite:
    """A write of ``values`` [..., n, ...] to the rows ``rows`` [n] of ``target`` along ``axis``; torch tensors."""

    target: ir.Value
    values: ir.Value
    axis: int
    rows: ir.Value
    first: ir.Value | None
    """Where the rows are ``first``, ``first + 1``, …: that one, a tensor of one element."""
    number: int | None
    """The number of rows; None if it is dynamic."""

    @classmethod
    def of(cls, op: ir.Operation) -> RowWrite | None:
        """Return the write that ``op`` is; None if it is another."""
        target, indices, values, accumulate = op.operands
        shape, values_shape = _shape(target), _shape(values)
        if shape is None or values_shape is None or len(shape) != len(values_shape) or constant_of(accumulate) != 0:
            return None
        if (
            TorchTensor.of(target).element != TorchTensor.of(values).element
            or producer(indices) != "torch.prim.ListConstruct"
        ):
            return None
        listed = list(indices.owner.operands)
        others = [axis for axis, index in enumerate(listed) if not _is_whole(index, shape[axis], len(listed) - axis)]
        if len(others) != 1:
            return None
        (axis,) = others
        rows = _without_trailing_ones(listed[axis], len(listed) - axis)
        expected = list(shape)
        if rows is None or (rows_shape := _shape(rows)) is None:
            return None
        expected[axis] = rows_shape[0]
        if expected != list(values_shape) or None in [*expected[:axis], *expected[axis + 1 :]]:
            return None
        number = rows_shape[0]
        first = rows if number == 1 else _start(rows)
        return cls(target, values, axis, rows, first, number)


def _shape(value: ir.Value) -> tuple[int | None, ...] | None:
    """Return the sizes of a tensor, None for a dynamic one; None for a value without known rank."""
    tensor = TorchTensor.read(value.type)
    return tensor.shape if tensor else None


def _is_int64(value: ir.Value) -> bool:
    return TorchTensor.of(value).signless_element == "i64"


def _without_trailing_ones(index: ir.Value, rank: int) -> ir.Value | None:
    """Return the tensor of rank 1 that ``index`` [n, 1, 1, …] of ``rank`` was made of by ``unsqueeze``."""
    for last in range(rank - 1, 0, -1):
        if producer(index) != "torch.aten.unsqueeze" or constant_of(index.owner.operands[1]) not in (-1, last):
            return None
        index = index.owner.operands[0]
    shape = _shape(index)
    return index if shape is not None and len(shape) == 1 and _is_int64(index) else None


def _is_whole(index: ir.Value, size: int | None, rank: int) -> bool:
    """Whether ``index`` counts through an axis of ``size``, and has ones for the axes behind it."""
    rows = _without_trailing_ones(index, rank)
    return rows is not None and size is not None and _counts_to(rows) == size


def _counts_to(rows: ir.Value) -> int | float | None:
    """Return ``n`` where ``rows`` is 0, 1, …, n - 1, infinity if that is not known; None for anything else."""
    if producer(rows) != _ARANGE:
        return None
    start, end, step = list(rows.owner.operands)[:3]
    if constant_of(start) != 0 or constant_of(step) != 1:
        return None
    known = constant_of(end)
    return math.inf if known is None else known


def _start(rows: ir.Value) -> ir.Value | None:
    """Return the first of ``rows`` if they are that and 0, 1, 2, … added: a tensor of one element."""
    if producer(rows) != "torch.aten.add.Tensor" or constant_of(rows.owner.operands[2]) != 1:
        return None
    for first, counted in ((0, 1), (1, 0)):
        start, count = rows.owner.operands[first], rows.owner.operands[counted]
        while producer(start) in _BROADCASTS:
            start = start.owner.operands[0]
        shape = _shape(start)
        if _counts_to(count) is not None and shape is not None and all(size == 1 for size in shape):
            return start if _is_int64(start) else None
    return None
