"""Lower dynamic-shape torch operators that the C++ lowerings to StableHLO do not support or get wrong."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.stablehlo.operators import (
    bitcast,
    collectives,
    convolution,
    cumsum,
    reduce_window,
    row_writes,
    slice,
    slice_scatter,
    sort,
)
from fx_importer.rewrites.stablehlo.tensor_emitter import OperatorLowering, TensorEmitter

LOWERINGS: dict[str, OperatorLowering] = {
    **bitcast.LOWERINGS,
    **sort.LOWERINGS,
    **reduce_window.LOWERINGS,
    **row_writes.LOWERINGS,
    **slice.LOWERINGS,
    **slice_scatter.LOWERINGS,
    **cumsum.LOWERINGS,
    **collectives.LOWERINGS,
    **convolution.LOWERINGS,
}


@rewrite("fx-importer-operators-to-stablehlo", ops=LOWERINGS, emitter=TensorEmitter)
def operators_to_stablehlo(op: ir.Operation, emit: TensorEmitter) -> None:
    """Lower the torch operators of `LOWERINGS`."""
    lowered = LOWERINGS[op.name](op, emit)
    if lowered is not None:
        results = [emit.torch.from_builtin(value, old.type) for old, value in zip(op.results, lowered, strict=True)]
        replace(op, *results)
