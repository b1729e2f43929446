"""Pipeline from the torch backend form to StableHLO."""

from __future__ import annotations

from fx_importer.options import LoweringOptions
from fx_importer.pipelines.contracts import STABLEHLO, contract
from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.pipelines.stage import Pass, Stage, backend_types, control_flow, on_functions
from fx_importer.rewrites import (
    accumulate_in_float32,
    allow_inlining,
    complex_parts_to_stablehlo,
    constants_to_stablehlo,
    control_flow_to_stablehlo,
    fold_stablehlo_no_ops,
    guard_stablehlo,
    literals_to_stablehlo,
    nans_in_stablehlo,
    operators_to_stablehlo,
    refine_stablehlo_shapes,
    reject_masks,
    scalars_to_stablehlo,
    unsigned_comparisons,
)


def stablehlo(options: LoweringOptions) -> Pipeline:
    """Return the pipeline to StableHLO."""
    finite = {"allow-non-finites": options.allow_non_finites}
    return Pipeline(
        "stablehlo",
        (
            control_flow(
                "Branches, loops, real and imaginary parts, pools and sorts are lowered to StableHLO.",
                control_flow_to_stablehlo,
                complex_parts_to_stablehlo,
                operators_to_stablehlo,
                reject_masks,
            ),
            Stage(
                "stablehlo",
                "Torch ops are lowered to StableHLO.",
                (
                    on_functions(
                        Pass("convert-torch-to-stablehlo", finite),
                        "chlo-legalize-to-stablehlo",  # the conversion also emits CHLO
                        "convert-torch-to-arith",
                        "canonicalize",
                        "cse",
                    ),
                    nans_in_stablehlo,
                    accumulate_in_float32,
                    unsigned_comparisons,
                ),
            ),
            backend_types(
                Pass("torch-func-backend-type-conversion-for-stablehlo"),
                on_functions("canonicalize"),
                literals_to_stablehlo,
                on_functions("torch-finalizing-backend-type-conversion-for-stablehlo"),
                Pass("torch-verify-stablehlo-backend-contract"),
            ),
            Stage(
                "stablehlo-shapes",
                "Inferable shapes are static, deprecated ops are replaced, tensor constants are stablehlo.constant.",
                (
                    allow_inlining,
                    on_functions(Pass("stablehlo-legalize-deprecated-ops", {"fail-on-unused": False})),
                    constants_to_stablehlo,
                    scalars_to_stablehlo,
                    on_functions("canonicalize", "stablehlo-canonicalize-dynamism", "canonicalize"),
                    refine_stablehlo_shapes,
                    on_functions("canonicalize", "stablehlo-canonicalize-dynamism", "canonicalize", "cse"),
                    constants_to_stablehlo,
                    fold_stablehlo_no_ops,
                    guard_stablehlo,
                    on_functions("canonicalize", "cse"),
                ),
            ),
            contract(STABLEHLO, options.contract),
        ),
    )
