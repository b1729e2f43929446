"""Passes between a module and IREE's compiler: forms of operations for which IREE 3.13 makes fast or correct code."""

from __future__ import annotations

from fx_importer.engines.engine_pipeline import INLINE
from fx_importer.engines.iree.engine import IREE_ENGINE
from fx_importer.engines.iree.iree_targets import HOST, IreeTarget, iree_target
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, Stage
from fx_importer.pipelines.stage import on_functions
from fx_importer.rewrites.iree.constants import extend_i48_constants, inline_bf16_constants, narrow_i64_constants
from fx_importer.rewrites.iree.element_insertions import elements_to_slices
from fx_importer.rewrites.iree.half_precision_matmuls import widen_half_precision_matmuls
from fx_importer.rewrites.iree.softmax import split_softmaxes
from fx_importer.rewrites.iree.sorts import keep_order_of_equal_elements, reject_linalg_sorts
from fx_importer.rewrites.iree.while_loops import while_to_do_while
from fx_importer.rewrites.linalg.branches_and_loops import branches_and_loops_to_scf
from fx_importer.rewrites.linalg.channels_last import channels_last
from fx_importer.rewrites.linalg.exact_floats import other_int8_matmuls_to_f32
from fx_importer.rewrites.linalg.insertion_bounds import clamp_insertions
from fx_importer.rewrites.stablehlo.convolution_layouts import stablehlo_channels_last
from fx_importer.rewrites.stablehlo.narrow_products import narrow_products

INPUT_TYPES = {
    OutputType.LINALG_ON_TENSORS: "none",
    OutputType.STABLEHLO: "stablehlo",
    OutputType.TOSA: "tosa",
    OutputType.TORCH: "torch",
}
"""IREE's input type by output type."""


def pipeline_for_host(output_type: OutputType) -> Pipeline:
    """Return the passes for modules of ``output_type`` on the processors of this machine."""
    return iree_pipeline(INPUT_TYPES[output_type.root], iree_target(HOST))


def iree_pipeline(input_type: str, target: IreeTarget) -> Pipeline:
    """Return the passes for modules of IREE's ``input_type`` on ``target``."""
    narrow = Stage(
        "narrow-integers", "Constants of int64 fit in 32 bits, in which the device computes.", (narrow_i64_constants,)
    )
    stages = [narrow] if target.narrow_integers else []
    if input_type == "torch":
        stages.append(INLINE)  # IREE 3.13 does not resolve calls in this dialect
    elif input_type == "stablehlo":
        narrow = (narrow_products,) if target.driver in ("cuda", "hip") else ()
        loops = (branches_and_loops_to_scf, while_to_do_while)
        passes = (stablehlo_channels_last, on_functions("cse"), *narrow, keep_order_of_equal_elements, *loops)
        stages.append(
            Stage("layouts", "Convolutions have channels last; sorts keep the order of equal elements.", passes)
        )
    elif input_type == "tosa":
        passes = (extend_i48_constants, branches_and_loops_to_scf, while_to_do_while)
        stages.append(
            Stage("constants", "Negative constants of i48 are computed from i32; branches and loops are scf.", passes)
        )
    elif input_type == "none":
        cpu = (
            *(() if target.microcontroller else (other_int8_matmuls_to_f32,)),
            split_softmaxes,
            widen_half_precision_matmuls,
            inline_bf16_constants,
            channels_last(integer_products=True),
        )
        layouts = cpu if target.is_cpu else (channels_last(),)
        passes = (reject_linalg_sorts, *layouts, elements_to_slices, clamp_insertions, while_to_do_while)
        stages.append(Stage("layouts", "Convolutions have channels last; insertions are within bounds.", passes))
    return Pipeline(IREE_ENGINE.name, tuple(stages))
