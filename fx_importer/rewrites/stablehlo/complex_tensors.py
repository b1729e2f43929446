"""Convert complex tensors from and to real and imaginary parts, which the C++ lowerings do not support."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.types import TorchTensor
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.torch.region_types import TypeConverter


@rewrite(
    "fx-importer-complex-parts-to-stablehlo",
    ops=("torch.aten.complex", "torch.aten.view_as_real"),
    emitter=TypeConverter,
)
def complex_parts_to_stablehlo(op: ir.Operation, emit: TypeConverter) -> None:
    """Lower ``torch.aten.view_as_real``, and ``torch.aten.complex`` with operands of equal type."""
    if op.name == "torch.aten.view_as_real":
        replace(op, _view_as_real(op, emit))
    elif op.operands[0].type == op.operands[1].type:
        type_ = op.results[0].type
        joined = emit.value("stablehlo.complex", emit.builtin_type(type_), *map(emit.to_builtin, op.operands))
        replace(op, emit.from_builtin(joined, type_))


def _view_as_real(op: ir.Operation, emit: TypeConverter) -> ir.Value:
    """Emit both parts, concatenated along a new last axis."""
    result = TorchTensor.of(op.results[0])
    sizes = result.shape[:-1]
    part, column = str(result.with_shape(sizes)), str(result.with_shape([*sizes, 1]))
    axis = emit.integer(len(sizes))
    operand = emit.to_builtin(op.operands[0])
    columns: list[ir.Value] = []
    for name in ("real", "imag"):
        read = emit.value(f"stablehlo.{name}", emit.builtin_type(emit.type(part)), operand)
        columns.append(emit.value("torch.aten.unsqueeze", column, emit.from_builtin(read, part), axis))
    both = emit.value("torch.prim.ListConstruct", f"!torch.list<{column.removeprefix('!torch.')}>", *columns)
    return emit.value("torch.aten.cat", op.results[0].type, both, axis)
