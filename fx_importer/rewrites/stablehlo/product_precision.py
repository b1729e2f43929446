"""The precision of float32 products on devices that have a narrower one and take it by default."""

from __future__ import annotations

from typing import Any

import torch

from fx_importer.mlir.bindings import ir, stablehlo_d
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
