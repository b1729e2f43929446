"""The rewrites in Python that pipelines hold, and the names under which their text is read back."""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.pipelines.pipeline import RewriteStep
from fx_importer.rewrites import (
    conditional_loops_to_scf,
    constants_to_stablehlo,
    constants_to_tosa,
    control_flow_to_stablehlo,
    control_flow_to_tosa,
    isolate_tosa_regions,
    literals_to_stablehlo,
    numbers_to_stablehlo,
    refine_shapes,
    state_to_values,
    tm_tensor_to_loops,
    values_to_memory,
)

SCF_LOOPS = RewriteStep("fx-importer-conditional-loops-to-scf", conditional_loops_to_scf)
TOSA_CONTROL_FLOW = RewriteStep("fx-importer-control-flow-to-tosa", control_flow_to_tosa)
TOSA_CONSTANTS = RewriteStep("fx-importer-constants-to-tosa", constants_to_tosa)
TOSA_ISOLATION = RewriteStep("fx-importer-isolate-tosa-regions", isolate_tosa_regions)
STABLEHLO_CONTROL_FLOW = RewriteStep("fx-importer-control-flow-to-stablehlo", control_flow_to_stablehlo)
STABLEHLO_CONSTANTS = RewriteStep("fx-importer-constants-to-stablehlo", constants_to_stablehlo)
STABLEHLO_LITERALS = RewriteStep("fx-importer-literals-to-stablehlo", literals_to_stablehlo)
STABLEHLO_NUMBERS = RewriteStep("fx-importer-numbers-to-stablehlo", numbers_to_stablehlo)
STABLEHLO_REFINEMENT = RewriteStep("fx-importer-refine-stablehlo-shapes", refine_shapes)
STATE_TO_VALUES = RewriteStep("fx-importer-state-to-values", state_to_values)
TM_TENSOR_LOOPS = RewriteStep("fx-importer-tm-tensor-to-loops", tm_tensor_to_loops)
VALUES_TO_MEMORY = RewriteStep("fx-importer-values-to-memory", values_to_memory)

REWRITES: Mapping[str, RewriteStep] = {
    step.name: step
    for step in (
        SCF_LOOPS,
        TOSA_CONTROL_FLOW,
        TOSA_CONSTANTS,
        TOSA_ISOLATION,
        STABLEHLO_CONTROL_FLOW,
        STABLEHLO_CONSTANTS,
        STABLEHLO_LITERALS,
        STABLEHLO_NUMBERS,
        STABLEHLO_REFINEMENT,
        STATE_TO_VALUES,
        TM_TENSOR_LOOPS,
        VALUES_TO_MEMORY,
    )
}
