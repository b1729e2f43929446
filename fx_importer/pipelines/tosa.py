"""From the torch backend form to TOSA."""

from __future__ import annotations

from fx_importer.options import LoweringOptions
from fx_importer.pipelines.pipeline import Pass, Pipeline, Stage, backend_types, on_functions


def tosa(options: LoweringOptions) -> Pipeline:
    """Return the pipeline to TOSA. ``options`` hold nothing that a TOSA pass takes."""
    return Pipeline(
        "tosa",
        (
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
        ),
    )
