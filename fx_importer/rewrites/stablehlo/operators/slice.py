"""Slices whose end depends on sizes or numbers of the program."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, producer
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.rewrites.stablehlo.tensor_emitter import TensorEmitter


def _slice(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    """Lower slices with a negative or unknown end, which may be 0 when the program runs.

    The C++ lowering takes an end of 0 as the size of the axis: ``x[:-1]`` of one row would have that row.
    """
    x, dim, start, end, step = op.operands
    axis, stride, last = emit.axis(x, dim), constant_of(step), constant_of(end)
    if axis is None or stride is None or producer(end) == "torch.constant.none" or (last is not None and last >= 0):
        return None
    begin = 0 if producer(start) == "torch.constant.none" else constant_of(start)
    is_dynamic = ir.RankedTensorType(emit.torch.builtin_type(x.type)).is_dynamic_dim(axis)
    if not is_dynamic and last is not None and begin is not None:
        return None
    whole = emit.torch.to_builtin(x)
    sizes = emit.arith.sizes(whole)
    first = _bounded(emit, emit.number(start) if begin is None else begin, sizes[axis], 0)
    limits = [_bounded(emit, emit.number(end), size, first) if i == axis else size for i, size in enumerate(sizes)]
    vectors = (
        [first if i == axis else 0 for i in range(len(sizes))],
        limits,
        [stride if i == axis else 1 for i in range(len(sizes))],
    )
    kind = emit.torch.builtin_type(op.results[0].type)
    return [emit.stablehlo("real_dynamic_slice", kind, whole, *map(emit.vector, vectors))]


def _bounded(emit: TensorEmitter, number: Size, size: Size, least: Size) -> Size:
    """Return a bound of a slice within ``least`` and ``size``: negative ones count from the end."""
    if number == 0:
        return least
    if isinstance(number, int):
        return _largest(emit, emit.plus(size, number), least) if number < 0 else _smallest(emit, number, size)
    negative = emit.arith.index_less(number, 0)
    counted = emit.arith.select_value(negative, emit.arith.index(emit.plus(size, number)), number)
    return _largest(emit, _smallest(emit, counted, size), least)


def _largest(emit: TensorEmitter, a: Size, b: Size) -> Size:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else emit.arith.index_op("maxsi", a, b)


def _smallest(emit: TensorEmitter, a: Size, b: Size) -> Size:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else emit.arith.index_op("minsi", a, b)


LOWERINGS = {"torch.aten.slice.Tensor": _slice}
