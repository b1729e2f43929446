"""Pipeline from the torch backend form to linalg on tensors."""

from __future__ import annotations

from fx_importer.options import LoweringOptions
from fx_importer.pipelines.contracts import LINALG, contract
from fx_importer.pipelines.pipeline import Pipeline
from fx_importer.pipelines.stage import Pass, Stage, backend_types, control_flow, on_functions
from fx_importer.rewrites import (
    allow_inlining,
    bitcasts_to_linalg,
    control_flow_to_scf,
    drop_unused_results,
    fill_results,
    fold_linalg_no_ops,
    fold_size_divisions,
    gelu_to_linalg,
    inline_positions,
    loops_to_destination_style,
    nans_in_linalg,
    row_writes_to_linalg,
    state_to_values,
    tm_tensor_to_loops,
    values_to_memory,
)


def linalg(options: LoweringOptions) -> Pipeline:
    """Return the pipeline to linalg, tensor, arith, math, scf and cf on builtin tensors."""
    finite = {"allow-non-finites": options.allow_non_finites}
    return Pipeline(
        "linalg-on-tensors",
        (
            control_flow(
                "Conditional loops are scf.while with torch ops in their regions; mutable state has value semantics.",
                bitcasts_to_linalg,
                gelu_to_linalg,
                row_writes_to_linalg,
                control_flow_to_scf,
                state_to_values,
            ),
            Stage(
                "linalg",
                "Torch ops are lowered to linalg, tensor, arith, math and scf.",
                (
                    on_functions(
                        "torch-restructure-non-constant-axes",
                        "torch-fuse-quantized-ops",
                        Pass("convert-torch-to-tmtensor", finite),  # scans, sorts, scatters; loops, in the end
                        "canonicalize",
                        Pass("convert-torch-to-linalg", finite),
                        "canonicalize",
                        "convert-torch-to-scf",
                        "convert-torch-to-arith",
                        "convert-torch-to-tensor",
                    ),
                    Pass("convert-torch-conversion-to-mlprogram"),  # the random number generator's state
                    on_functions("resolve-shaped-type-result-dims", "cse"),
                ),
            ),
            backend_types(
                Pass("torch-func-backend-type-conversion"),
                on_functions("canonicalize", "torch-finalizing-backend-type-conversion"),
                Pass("torch-verify-linalg-on-tensors-backend-contract"),
            ),
            Stage(
                "loops",
                "Scans, scatters, sorts are loops that update tensors in place; NaN propagates; no-ops are dropped.",
                (
                    *(allow_inlining, nans_in_linalg, tm_tensor_to_loops, fold_linalg_no_ops, inline_positions),
                    fold_size_divisions,
                    on_functions("resolve-shaped-type-result-dims", "canonicalize", "cse"),
                    *(drop_unused_results, fill_results, loops_to_destination_style),
                    on_functions("canonicalize", "cse"),
                ),
            ),
            Stage("in-place", "State that a function mutates is passed in memrefs.", (values_to_memory,)),
            contract(LINALG, options.contract),
        ),
    )
