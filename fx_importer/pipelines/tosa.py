"""From the torch backend form to TOSA."""

from __future__ import annotations

from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines.contracts import contract
from fx_importer.pipelines.pipeline import Pass, Pipeline, Stage, backend_types, control_flow, on_functions
from fx_importer.pipelines.rewrite_steps import TOSA_CONSTANTS, TOSA_CONTROL_FLOW, TOSA_ISOLATION


def tosa(options: LoweringOptions) -> Pipeline:
    """Return the pipeline to TOSA. No TOSA pass takes any of ``options``."""
    return Pipeline(
        "tosa",
        (
            control_flow("Branches and loops are TOSA's, around torch ops.", TOSA_CONTROL_FLOW),
            Stage(
                "tosa",
                "Torch ops have become TOSA ops.",
                (
                    on_functions(
                        "torch-fuse-quantized-ops",
                        # Else it stops at the first op it cannot lower; so all of them are named, in 'backend-types'.
                        Pass("convert-torch-to-tosa", {"require-full-tosa-conversion": False}),
                    ),
                ),
            ),
            Stage(
                "tosa-simplify",
                "Constants are folded, transposes moved and merged, and equal expressions computed once.",
                (
                    on_functions(
                        "tosa-layerwise-constant-fold",
                        "tosa-reduce-transposes",
                        "tosa-make-broadcastable",
                        "canonicalize",
                        "cse",
                    ),
                ),
            ),
            backend_types(
                Pass("torch-func-backend-type-conversion"),
                on_functions("canonicalize", "torch-finalizing-backend-type-conversion"),
                Pass("torch-verify-tosa-backend-contract"),
            ),
            Stage(
                "tosa-regions",
                "Constant tensors are TOSA's; regions have inputs and constants, and read nothing from outside.",
                (TOSA_CONSTANTS, TOSA_ISOLATION),
            ),
            contract(OutputType.TOSA, options.contract),
        ),
    )
