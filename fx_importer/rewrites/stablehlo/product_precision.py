"""The precision of products: of float32 on devices that have a narrower one, and float32 sums of low-precision ones."""

from __future__ import annotations

from typing import Any

import torch

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import Emitter, attributes_of, replace, with_element
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-product-precision", ops=("stablehlo.dot_general", "stablehlo.convolution"))
def product_precision(op: ir.Operation) -> None:
    """Ask for float32 where PyTorch computes products in float32, by its settings at the time.

    XLA computes them in TF32 on NVIDIA's GPUs otherwise, with 10 bits after the point. PyTorch does so for matmuls
    with ``torch.set_float32_matmul_precision("high")``, and for convolutions by default (``cudnn.allow_tf32``); both
    set ``fp32_precision`` too, which programs also set alone.
    """
    if any(StablehloOps.element(value) != "f32" for value in op.operands):
        return
    backends: Any = torch.backends  # its stubs lack the settings of convolutions
    settings = backends.cuda.matmul if op.name == "stablehlo.dot_general" else backends.cudnn.conv
    if settings.fp32_precision != "tf32":
        with op.context:
            highest = stablehlo_d.PrecisionAttr.get("HIGHEST")
            op.attributes["precision_config"] = ir.ArrayAttr.get([highest, highest])


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
