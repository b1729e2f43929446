"""Passes between a module of StableHLO and XLA: forms of operations for which XLA 0.10 has fast kernels."""

from __future__ import annotations

from fx_importer.engines.xla.engine import XLA_ENGINE
from fx_importer.engines.xla.xla_devices import HOST
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, Stage
from fx_importer.pipelines.stage import on_functions
from fx_importer.rewrites.stablehlo.convolution_layouts import stablehlo_channels_last
from fx_importer.rewrites.stablehlo.exact_floats import stablehlo_int8_matmuls_to_f32
from fx_importer.rewrites.stablehlo.narrow_products import narrow_products
from fx_importer.rewrites.stablehlo.product_precision import product_precision
from fx_importer.rewrites.xla.row_matmuls import double_bf16_rows
from fx_importer.rewrites.xla.row_writes import row_writes_to_case


def pipeline_for_host(output_type: OutputType) -> Pipeline:
    """Return the passes for programs of one device of the host."""
    del output_type  # it accepts one
    return xla_pipeline(HOST, devices=1)


def xla_pipeline(platform: str, devices: int) -> Pipeline:
    """Return the passes for a program on ``devices`` of jax's ``platform``."""
    if platform != HOST:
        description = "Products are as precise as in PyTorch, and of 16 bits where it has them. XLA chooses layouts."
        passes = (on_functions("cse"), narrow_products, product_precision)
        return Pipeline(XLA_ENGINE.name, (Stage("precision", description, passes),))
    writes = (row_writes_to_case,) if devices == 1 else ()
    passes = (stablehlo_int8_matmuls_to_f32, stablehlo_channels_last, on_functions("cse"), double_bf16_rows, *writes)
    description = "Convolutions have channels last; int8 matmuls are in float32 where that is exact."
    return Pipeline(XLA_ENGINE.name, (Stage("layouts", description, passes),))
