"""Pipeline from the torch backend form to StableHLO."""

from __future__ import annotations

from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines.contracts import contract
from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.pipelines.rewrite_passes import (
    ALLOW_INLINING,
    STABLEHLO_ACCUMULATION,
    STABLEHLO_COMPLEX,
    STABLEHLO_CONSTANTS,
    STABLEHLO_CONTROL_FLOW,
    STABLEHLO_LITERALS,
    STABLEHLO_NANS,
    STABLEHLO_NOISE,
    STABLEHLO_NUMBERS,
    STABLEHLO_OPERATORS,
    STABLEHLO_REFINEMENT,
)
from fx_importer.pipelines.stage import Pass, Stage, backend_types, control_flow, on_functions


def stablehlo(options: LoweringOptions) -> Pipeline:
    """Return the pipeline to StableHLO."""
    finite = {"allow-non-finites": options.allow_non_finites}
    return Pipeline(
        "stablehlo",
        (
            control_flow(
                "Branches, loops, complex parts, pools and sorts are StableHLO's.",
                STABLEHLO_CONTROL_FLOW,
                STABLEHLO_COMPLEX,
                STABLEHLO_OPERATORS,
            ),
            Stage(
                "stablehlo",
                "Torch ops have become StableHLO ops.",
                (
                    on_functions(
                        Pass("convert-torch-to-stablehlo", finite),
                        "chlo-legalize-to-stablehlo",  # the conversion also emits CHLO
                        "convert-torch-to-arith",
                        "canonicalize",
                        "cse",
                    ),
                    STABLEHLO_NANS,
                    STABLEHLO_ACCUMULATION,
                ),
            ),
            backend_types(
                Pass("torch-func-backend-type-conversion-for-stablehlo"),
                on_functions("canonicalize"),
                STABLEHLO_LITERALS,
                on_functions("torch-finalizing-backend-type-conversion-for-stablehlo"),
                Pass("torch-verify-stablehlo-backend-contract"),
            ),
            Stage(
                "stablehlo-shapes",
                "Shapes that can be known are static, deprecated ops are gone, and constant tensors are StableHLO's.",
                (
                    ALLOW_INLINING,
                    on_functions(Pass("stablehlo-legalize-deprecated-ops", {"fail-on-unused": False})),
                    STABLEHLO_CONSTANTS,
                    STABLEHLO_NUMBERS,
                    on_functions("canonicalize", "stablehlo-canonicalize-dynamism", "canonicalize"),
                    STABLEHLO_REFINEMENT,
                    on_functions("canonicalize", "stablehlo-canonicalize-dynamism", "canonicalize", "cse"),
                    STABLEHLO_CONSTANTS,
                    STABLEHLO_NOISE,
                    on_functions("canonicalize", "cse"),
                ),
            ),
            contract(OutputType.STABLEHLO, options.contract),
        ),
    )
