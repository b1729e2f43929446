"""Accumulate low-precision matmuls in float32, as eager does; StableHLO leaves the precision open."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, attributes_of, replace, with_element
from fx_importer.mlir.walk import rewrite


@rewrite(
    "fx-importer-accumulate-in-float32",
    ops=("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"),
    emitter=Emitter,
)
def accumulate_in_float32(op: ir.Operation, emit: Emitter) -> None:
    """Make matmuls and convolutions of float16 and bfloat16 return float32, and convert the result back."""
    type_ = op.results[0].type
    if emit.element(type_) not in ("f16", "bf16"):
        return
    product = emit.op(op.name, [with_element(type_, "f32")], list(op.operands), attributes_of(op)).result
    replace(op, emit.value("stablehlo.convert", type_, product))
