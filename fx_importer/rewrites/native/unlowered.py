"""Operations that passes to linalg leave."""

from __future__ import annotations

from fx_importer.diagnostics.mlir_diagnostics import read_location, user_frame
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-refuse-unlowered")
def refuse_unlowered(module: ir.Operation) -> None:
    """Raise `UsageError` for the first operation of TOSA or StableHLO that has no form in linalg."""
    for op in operations(module):
        if op.name.startswith(("tosa.", "stablehlo.")):
            frame = user_frame(read_location(op.location)[0])
            where = f" ({frame[0]}:{frame[1]})" if frame else ""
            sizes = [ir.RankedTensorType(value.type).has_static_shape for value in op.results if _is_ranked(value)]
            dynamic = "" if all(sizes) else " with dynamic sizes"
            raise UsageError(
                f"{op.name}{dynamic}{where} has no form in native code: lower with output_type='linalg-on-tensors'"
            )


def _is_ranked(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)
