"""Lower cumulative sums along a dynamic axis to a parallel prefix sum in log n steps.

Step ``k`` adds to each element the one ``2**k`` before it (Hillis and Steele, "Data parallel algorithms", 1986).
"""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.rewrites.stablehlo.tensor_emitter import TensorEmitter


def _cumsum(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    """Lower sums along a dynamic axis; for a static one, the C++ lowering emits a window of its size."""
    x, dim, _ = op.operands
    axis = emit.axis(x, dim)
    if axis is None or not ir.RankedTensorType(emit.torch.builtin_type(x.type)).is_dynamic_dim(axis):
        return None
    total = emit.converted(emit.torch.to_builtin(x), emit.element(emit.torch.builtin_type(op.results[0].type)))
    sizes = emit.arith.sizes(total)
    along = emit.scalar(sizes[axis])
    twice = [emit.plus(size, size) if dim == axis else size for dim, size in enumerate(sizes)]
    element = emit.element(total)
    zeros = emit.filled(emit.dense_constant("0" if element[0] in "iu" else "0.0", emit.tensor((), element)), twice)
    zero, one, two = (emit.dense_constant(text, "tensor<i64>") for text in "012")
    kinds = [one.type, total.type]

    def body(inside: TensorEmitter, shift: ir.Value, total: ir.Value) -> list[ir.Value]:
        starts = [shift if dim == axis else zero for dim in range(len(sizes))]
        moved = inside.value("stablehlo.dynamic_update_slice", zeros.type, zeros, total, *starts)
        doubled = inside.value("stablehlo.multiply", shift.type, shift, two)  # XLA aborts at shift + shift
        return [doubled, inside.value("stablehlo.add", total.type, total, inside.first(moved, sizes))]

    loop = emit.op("stablehlo.while", kinds, [one, total], regions=2)
    emit.fill_region(loop.regions[0], kinds, lambda inside, shift, _: [inside.compare_elements("LT", shift, along)])
    emit.fill_region(loop.regions[1], kinds, body)
    return [loop.results[1]]


LOWERINGS = {"torch.aten.cumsum": _cumsum}
