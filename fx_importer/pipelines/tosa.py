"""Pipeline from the torch backend form to TOSA."""

from __future__ import annotations

from fx_importer.options import Contract, LoweringOptions
from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.pipelines.rewrite_passes import (
    ALLOW_INLINING,
    NARROW_TOSA_INTEGERS,
    NARROW_TOSA_INTEGERS_UNPROVED,
    TOSA_ARGUMENTS,
    TOSA_CONSTANTS,
    TOSA_CONTROL_FLOW,
    TOSA_INTEGERS,
    TOSA_ISOLATION,
    TOSA_SIGNATURES,
    TOSA_SUMS,
    TOSA_WEIGHTS,
)
from fx_importer.pipelines.stage import (
    Pass,
    RewriteStep,
    Stage,
    backend_types,
    control_flow,
    on_functions,
)
from fx_importer.pipelines.tosa_contract import tosa_contract


def tosa(options: LoweringOptions) -> Pipeline:
    """Return the pipeline to TOSA."""
    return Pipeline(
        "tosa",
        (
            control_flow("Branches, loops and sums of 64-bit integers are TOSA's.", TOSA_CONTROL_FLOW, TOSA_SUMS),
            Stage(
                "tosa",
                "Torch ops have become TOSA ops.",
                (
                    on_functions(
                        "torch-fuse-quantized-ops",
                        # A full conversion stops at the first op without a lowering; 'backend-types' names all.
                        Pass("convert-torch-to-tosa", {"require-full-tosa-conversion": False}),
                    ),
                ),
            ),
            Stage(
                "tosa-simplify",
                "Constants are folded, transposes moved and merged, and equal expressions computed once.",
                (
                    TOSA_WEIGHTS,
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
                TOSA_SIGNATURES,
                Pass("torch-func-backend-type-conversion"),
                on_functions("canonicalize", "torch-finalizing-backend-type-conversion"),
                Pass("torch-verify-tosa-backend-contract"),
            ),
            Stage(
                "tosa-integers",
                "Constants are TOSA's, as functions want them; integers have 32 bits where they fit, or everywhere.",
                (
                    ALLOW_INLINING,
                    TOSA_CONSTANTS,
                    TOSA_ARGUMENTS,
                    _integers(options),
                    on_functions("canonicalize", "cse"),
                ),
            ),
            Stage(
                "tosa-regions",
                "Regions have inputs and constants, and read nothing from outside.",
                (TOSA_ISOLATION,),
            ),
            tosa_contract(options.valid_for, options.contract),
        ),
    )


def _integers(options: LoweringOptions) -> RewriteStep:
    if not options.narrow_integers:
        return TOSA_INTEGERS
    return NARROW_TOSA_INTEGERS if options.contract is Contract.ERROR else NARROW_TOSA_INTEGERS_UNPROVED
