"""Write adjacent rows with ``dynamic_update_slice``; the C++ lowering scatters element by element."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.rewrites.stablehlo.tensor_emitter import TensorEmitter
from fx_importer.rewrites.torch.row_writes import INDEX_PUTS, RowWrite


def _row_write(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    """Write nothing unless all rows are in bounds, like a scatter; ``dynamic_update_slice`` would clamp them."""
    write = RowWrite.of(op)
    if write is None or write.first is None or write.number is None:
        return None
    target, values = emit.torch.to_builtin(write.target), emit.torch.to_builtin(write.values)
    sizes = [size for size in emit.shape(values) if size is not None]
    size = emit.shape(target)[write.axis]
    if size is None or len(sizes) < ir.RankedTensorType(values.type).rank:
        return None
    start = emit.stablehlo("reshape", "tensor<i64>", emit.torch.to_builtin(write.first))
    zero, last = (emit.dense_constant(str(number), "tensor<i64>") for number in (0, size - write.number))
    starts = [start if axis == write.axis else zero for axis in range(len(sizes))]
    inside = emit.stablehlo("and", "tensor<i1>", emit.compare("GE", start, zero), emit.compare("LE", start, last))
    before = emit.op(
        "stablehlo.dynamic_slice", [values.type], [target, *starts], {"slice_sizes": emit.array(sizes)}
    ).result
    kept = emit.stablehlo("select", values.type, inside, values, before)
    return [emit.stablehlo("dynamic_update_slice", target.type, target, kept, *starts)]


LOWERINGS = dict.fromkeys(INDEX_PUTS, _row_write)
