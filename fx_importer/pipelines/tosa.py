"""From the torch backend form to TOSA."""

from __future__ import annotations

from fx_importer.options import LoweringOptions
from fx_importer.pipelines.pipeline import Pass, Pipeline, Stage, on_functions


def tosa(options: LoweringOptions) -> Pipeline:
    """Return the pipeline to TOSA. ``options`` hold nothing that a TOSA pass takes."""
    del options
    return Pipeline(
        "tosa",
        (
            Stage(
                "tosa",
                "Torch ops have become TOSA ops, all of them.",
                (
                    on_functions(
                        "torch-fuse-quantized-ops",
                        Pass("convert-torch-to-tosa", {"require-full-tosa-conversion": True}),
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
            Stage(
                "backend-types",
                "Functions take and return builtin tensors; nothing of torch is left.",
                (
                    Pass("torch-func-backend-type-conversion"),
                    on_functions("canonicalize", "torch-finalizing-backend-type-conversion"),
                    Pass("torch-verify-tosa-backend-contract"),
                ),
            ),
        ),
    )
