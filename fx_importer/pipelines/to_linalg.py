"""Upstream passes from TOSA and StableHLO to linalg on tensors."""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.pipelines.stage import Pass, Stage, on_functions
from fx_importer.rewrites import (
    boolean_sums_to_or,
    branches_and_loops_to_scf,
    copy_new_state,
    dynamic_sizes_to_tensor,
    dynamic_slices_to_tensor,
    dynamic_windows_to_linalg,
    fill_results,
    fold_size_broadcasts,
    inline_rank_0_generics,
    loops_to_destination_style,
    merge_dot_dimensions,
    scatter_sort_to_loops,
    sliced_state_to_memory,
    tosa_padding_types,
    tosa_scatter_to_loops,
    tosa_sizes_to_tensor,
    tosa_wide_negations,
)

TO_LINALG: Mapping[str, Stage] = {
    "tosa": Stage(
        "tosa-to-linalg",
        "TOSA ops are lowered to linalg, tensor, arith, math and scf.",
        (
            tosa_sizes_to_tensor,
            branches_and_loops_to_scf,  # before passes that do not convert TOSA ops in regions
            on_functions("tosa-optional-decompositions"),  # transposed convolutions
            tosa_padding_types,
            tosa_scatter_to_loops,
            tosa_wide_negations,
            on_functions("tosa-to-linalg-named", "canonicalize", "tosa-make-broadcastable", "tosa-to-linalg"),
            on_functions("tosa-to-tensor", "tosa-to-arith{include-apply-rescale=true}", "canonicalize", "cse"),
            fold_size_broadcasts,
            fill_results,
            loops_to_destination_style,
        ),
    ),
    "stablehlo": Stage(
        "stablehlo-to-linalg",
        "StableHLO ops are lowered to linalg, tensor, arith, math and scf.",
        (
            boolean_sums_to_or,
            branches_and_loops_to_scf,
            scatter_sort_to_loops,
            dynamic_sizes_to_tensor,
            dynamic_slices_to_tensor,
            dynamic_windows_to_linalg,
            merge_dot_dimensions,
            on_functions("stablehlo-legalize-to-linalg"),
            Pass("stablehlo-convert-to-signless"),  # after the conversion, which depends on the signedness of integers
            on_functions("canonicalize", "cse", "reconcile-unrealized-casts"),
            inline_rank_0_generics,
            on_functions("canonicalize", "cse"),
            fill_results,
            loops_to_destination_style,
        ),
    ),
}
"""The stage by the source dialect."""

IN_PLACE = Stage(
    "state",
    "State with written slices is passed in memrefs, and read before other state is written.",
    (sliced_state_to_memory, copy_new_state),
)
"""Runs on linalg on tensors, where a caller passes state that may be overwritten."""
