"""The rewrites in Python that pipelines hold, and the names under which their text is read back."""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.pipelines.stage import RewriteStep
from fx_importer.rewrites import (
    accumulate_in_float32,
    allow_inlining,
    complex_parts_to_stablehlo,
    conditional_loops_to_scf,
    constants_to_stablehlo,
    constants_to_tosa,
    control_flow_to_stablehlo,
    control_flow_to_tosa,
    fit_tosa_integers,
    isolate_tosa_regions,
    linalg_without_noise,
    literals_to_stablehlo,
    long_sums_to_tosa,
    nans_in_linalg,
    nans_in_stablehlo,
    narrow_tosa_integers,
    narrow_tosa_integers_unproved,
    numbers_to_stablehlo,
    operators_to_stablehlo,
    refine_shapes,
    refuse_numbers,
    sizes_to_tensor,
    state_to_values,
    tm_tensor_to_loops,
    transpose_tosa_arguments,
    transpose_tosa_weights,
    values_to_memory,
    without_noise,
)

SCF_LOOPS = RewriteStep("fx-importer-conditional-loops-to-scf", conditional_loops_to_scf)
TOSA_CONTROL_FLOW = RewriteStep("fx-importer-control-flow-to-tosa", control_flow_to_tosa)
TOSA_CONSTANTS = RewriteStep("fx-importer-constants-to-tosa", constants_to_tosa)
TOSA_ISOLATION = RewriteStep("fx-importer-isolate-tosa-regions", isolate_tosa_regions)
TOSA_SUMS = RewriteStep("fx-importer-long-sums-to-tosa", long_sums_to_tosa)
TOSA_SIGNATURES = RewriteStep("fx-importer-refuse-numbers", refuse_numbers)
TOSA_WEIGHTS = RewriteStep("fx-importer-transpose-tosa-weights", transpose_tosa_weights)
TOSA_ARGUMENTS = RewriteStep("fx-importer-transpose-tosa-arguments", transpose_tosa_arguments)
TOSA_INTEGERS = RewriteStep("fx-importer-fit-tosa-integers", fit_tosa_integers)
NARROW_TOSA_INTEGERS = RewriteStep("fx-importer-narrow-tosa-integers", narrow_tosa_integers)
NARROW_TOSA_INTEGERS_UNPROVED = RewriteStep("fx-importer-narrow-tosa-integers-unproved", narrow_tosa_integers_unproved)
STABLEHLO_CONTROL_FLOW = RewriteStep("fx-importer-control-flow-to-stablehlo", control_flow_to_stablehlo)
STABLEHLO_COMPLEX = RewriteStep("fx-importer-complex-parts-to-stablehlo", complex_parts_to_stablehlo)
STABLEHLO_CONSTANTS = RewriteStep("fx-importer-constants-to-stablehlo", constants_to_stablehlo)
STABLEHLO_LITERALS = RewriteStep("fx-importer-literals-to-stablehlo", literals_to_stablehlo)
STABLEHLO_OPERATORS = RewriteStep("fx-importer-operators-to-stablehlo", operators_to_stablehlo)
STABLEHLO_NUMBERS = RewriteStep("fx-importer-numbers-to-stablehlo", numbers_to_stablehlo)
STABLEHLO_NOISE = RewriteStep("fx-importer-stablehlo-without-noise", without_noise)
STABLEHLO_SIZES = RewriteStep("fx-importer-stablehlo-sizes-to-tensor", sizes_to_tensor)
STABLEHLO_REFINEMENT = RewriteStep("fx-importer-refine-stablehlo-shapes", refine_shapes)
LINALG_NANS = RewriteStep("fx-importer-nans-in-linalg", nans_in_linalg)
STABLEHLO_NANS = RewriteStep("fx-importer-nans-in-stablehlo", nans_in_stablehlo)
STABLEHLO_ACCUMULATION = RewriteStep("fx-importer-accumulate-in-float32", accumulate_in_float32)
STATE_TO_VALUES = RewriteStep("fx-importer-state-to-values", state_to_values)
LINALG_NOISE = RewriteStep("fx-importer-linalg-without-noise", linalg_without_noise)
TM_TENSOR_LOOPS = RewriteStep("fx-importer-tm-tensor-to-loops", tm_tensor_to_loops)
ALLOW_INLINING = RewriteStep("fx-importer-allow-inlining", allow_inlining)
VALUES_TO_MEMORY = RewriteStep("fx-importer-values-to-memory", values_to_memory)

REWRITES: Mapping[str, RewriteStep] = {
    step.name: step
    for step in (
        SCF_LOOPS,
        TOSA_CONTROL_FLOW,
        TOSA_CONSTANTS,
        TOSA_ISOLATION,
        TOSA_SUMS,
        TOSA_SIGNATURES,
        TOSA_WEIGHTS,
        TOSA_ARGUMENTS,
        TOSA_INTEGERS,
        NARROW_TOSA_INTEGERS,
        NARROW_TOSA_INTEGERS_UNPROVED,
        STABLEHLO_CONTROL_FLOW,
        STABLEHLO_CONSTANTS,
        STABLEHLO_LITERALS,
        STABLEHLO_COMPLEX,
        STABLEHLO_OPERATORS,
        STABLEHLO_NUMBERS,
        STABLEHLO_NOISE,
        STABLEHLO_REFINEMENT,
        STABLEHLO_SIZES,
        LINALG_NANS,
        STABLEHLO_NANS,
        STABLEHLO_ACCUMULATION,
        STATE_TO_VALUES,
        LINALG_NOISE,
        TM_TENSOR_LOOPS,
        VALUES_TO_MEMORY,
        ALLOW_INLINING,
    )
}
