"""Lower same-width ``view.dtype``; the C++ lowering supports only static shapes."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.rewrites.stablehlo.tensor_emitter import TensorEmitter


def _bitcast(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    source, result = (
        ir.RankedTensorType(emit.torch.builtin_type(value.type)) for value in (op.operands[0], op.results[0])
    )
    if list(source.shape) != list(result.shape):
        return None
    return [emit.value("stablehlo.bitcast_convert", result, emit.torch.to_builtin(op.operands[0]))]


LOWERINGS = {"torch.aten.view.dtype": _bitcast}
