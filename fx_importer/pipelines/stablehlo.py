"""From the torch backend form to StableHLO."""

from __future__ import annotations

from fx_importer.options import LoweringOptions
from fx_importer.pipelines.pipeline import Pass, Pipeline, Stage, backend_types, on_functions


def stablehlo(options: LoweringOptions) -> Pipeline:
    """Return the pipeline to StableHLO."""
    finite = {"allow-non-finites": options.allow_non_finites}
    return Pipeline(
        "stablehlo",
        (
            Stage(
                "stablehlo",
                "Torch ops have become StableHLO ops.",
                (
                    on_functions(
                        Pass("convert-torch-to-stablehlo", finite),
                        "chlo-legalize-to-stablehlo",  # the client dialect, which the conversion also uses
                        "convert-torch-to-arith",
                        "canonicalize",
                        "cse",
                    ),
                ),
            ),
            backend_types(
                Pass("torch-func-backend-type-conversion-for-stablehlo"),
                on_functions("canonicalize", "torch-finalizing-backend-type-conversion-for-stablehlo"),
                Pass("torch-verify-stablehlo-backend-contract"),
            ),
            Stage(
                "stablehlo-shapes",
                "Shapes that can be known are static, and ops StableHLO has deprecated are replaced.",
                (
                    on_functions("stablehlo-canonicalize-dynamism", "canonicalize"),
                    Pass("stablehlo-refine-shapes"),
                    on_functions(
                        "canonicalize",
                        "stablehlo-canonicalize-dynamism",
                        "canonicalize",
                        Pass("stablehlo-legalize-deprecated-ops", {"fail-on-unused": False}),
                        "canonicalize",
                    ),
                ),
            ),
        ),
    )
