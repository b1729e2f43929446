"""Pipeline from the torch backend form to TOSA."""

from __future__ import annotations

from fx_importer.options import Contract, LoweringOptions
from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.pipelines.stage import (
    Pass,
    RewriteStep,
    Stage,
    backend_types,
    control_flow,
    on_functions,
)
from fx_importer.pipelines.tosa_contract import tosa_contract
from fx_importer.rewrites import (
    allow_inlining,
    constants_to_tosa,
    control_flow_to_tosa,
    dynamic_convolutions_to_tosa,
    dynamic_pools_to_tosa,
    dynamic_sizes_to_tosa,
    erase_unused_sizes,
    f64_convolutions_to_f32,
    fit_tosa_floats,
    fit_tosa_integers,
    fold_tosa_rounding,
    guard_tosa,
    i64_sums_to_tosa,
    isolate_tosa_regions,
    keep_tosa_floats,
    narrow_tosa_floats,
    narrow_tosa_integers,
    narrow_tosa_integers_unproved,
    reduce_tosa_ranks,
    reject_scalar_arguments,
    remove_tosa_transposes,
    transpose_tosa_arguments,
    transpose_tosa_weights,
)


def tosa(options: LoweringOptions) -> Pipeline:
    """Return the pipeline to TOSA."""
    return Pipeline(
        "tosa",
        (
            control_flow(
                "Branches, loops, sums of 64-bit integers and data movement of dynamic sizes are lowered to TOSA.",
                f64_convolutions_to_f32,
                control_flow_to_tosa,
                dynamic_pools_to_tosa,
                dynamic_convolutions_to_tosa,
                dynamic_sizes_to_tosa,
                erase_unused_sizes,
                i64_sums_to_tosa,
            ),
            Stage(
                "tosa",
                "Torch ops are lowered to TOSA.",
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
                "Constants are folded, transposes are moved and merged, common subexpressions are eliminated.",
                (
                    keep_tosa_floats,
                    transpose_tosa_weights,
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
                reject_scalar_arguments,
                Pass("torch-func-backend-type-conversion"),
                on_functions("canonicalize", "torch-finalizing-backend-type-conversion"),
                Pass("torch-verify-tosa-backend-contract"),
            ),
            Stage(
                "tosa-integers",
                "Constants are tosa.const; floats have 32 bits, and 64-bit integers where they fit, or everywhere.",
                (
                    allow_inlining,
                    constants_to_tosa,
                    narrow_tosa_floats if options.narrow_floats else fit_tosa_floats,
                    *(() if options.valid_for.level == "none" else (reduce_tosa_ranks,)),
                    transpose_tosa_arguments,
                    _integers(options),
                    fold_tosa_rounding,
                    remove_tosa_transposes,
                    guard_tosa,
                    on_functions("canonicalize", "cse"),
                ),
            ),
            Stage(
                "tosa-regions",
                "Regions are isolated from above: captured values are inputs, constants are copied.",
                (isolate_tosa_regions,),
            ),
            tosa_contract(options.valid_for, options.contract),
        ),
    )


def _integers(options: LoweringOptions) -> RewriteStep:
    if not options.narrow_integers:
        return fit_tosa_integers
    return narrow_tosa_integers if options.contract is Contract.ERROR else narrow_tosa_integers_unproved
