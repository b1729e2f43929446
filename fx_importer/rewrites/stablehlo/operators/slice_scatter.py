"""Writing into a part of a tensor, where it begins and ends at places that are known at run time only."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import constant_of, producer
from fx_importer.rewrites.stablehlo.tensor_emitter import Size, TensorEmitter


def _slice_scatter(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    """Of a step of 1. What is written says where it ends."""
    x, source, dim, start, end, step = op.operands
    axis = emit.axis(x, dim)
    known = constant_of(start) is not None and constant_of(end) is not None
    if axis is None or constant_of(step) != 1 or known:
        return None
    whole, part = emit.send(x), emit.send(source)
    first = 0 if producer(start) == "torch.constant.none" else emit.number(start)
    place, zero = emit.scalar(_from_the_start(emit, first, emit.size(whole, axis))), emit.constant("0", "tensor<i64>")
    starts = [place if each == axis else zero for each in range(ir.RankedTensorType(whole.type).rank)]
    return [emit.value("stablehlo.dynamic_update_slice", whole.type, whole, part, *starts)]


def _from_the_start(emit: TensorEmitter, start: Size, size: Size) -> Size:
    """Return ``start`` counted from the beginning. (What is beyond the ends, the operation itself puts right.)"""
    if isinstance(start, int):
        return start if start >= 0 else emit.plus(size, start)
    negative = emit.op("arith.cmpi", ["i1"], [start, emit.index(0)], {"predicate": emit.i64(2)}).result
    return emit.value("arith.select", "index", negative, emit.index(emit.plus(size, start)), start)


RULES = {"torch.aten.slice_scatter": _slice_scatter}
