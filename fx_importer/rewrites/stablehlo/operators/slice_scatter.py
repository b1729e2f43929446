"""Slice scatter with dynamic bounds or sizes."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, producer
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.rewrites.stablehlo.tensor_emitter import TensorEmitter


def _slice_scatter(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    """Lower slices with step 1. The size of the source determines the end.

    The C++ lowering computes an index for each element up to the end, which is the largest int64 for ``x[1:]``.
    """
    x, source, dim, start, end, step = op.operands
    axis = emit.axis(x, dim)
    if axis is None or constant_of(step) != 1:
        return None
    whole, part = emit.torch.to_builtin(x), emit.torch.to_builtin(source)
    known = constant_of(start) is not None and constant_of(end) is not None
    if known and ir.RankedTensorType(whole.type).has_static_shape:
        return None
    first = 0 if producer(start) == "torch.constant.none" else emit.number(start)
    offset, zero = (
        emit.scalar(_from_start(emit, first, emit.arith.size(whole, axis))),
        emit.dense_constant("0", "tensor<i64>"),
    )
    starts = [offset if dim == axis else zero for dim in range(ir.RankedTensorType(whole.type).rank)]
    return [emit.value("stablehlo.dynamic_update_slice", whole.type, whole, part, *starts)]


def _from_start(emit: TensorEmitter, start: Size, size: Size) -> Size:
    """Return ``start``, plus ``size`` if it is negative. The emitted operation clamps it to the bounds."""
    if isinstance(start, int):
        return start if start >= 0 else emit.plus(size, start)
    negative = emit.arith.index_less(start, 0)
    return emit.arith.select_value(negative, emit.arith.index(emit.plus(size, start)), start)


LOWERINGS = {"torch.aten.slice_scatter": _slice_scatter}
