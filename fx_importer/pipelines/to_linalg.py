"""From TOSA and StableHLO to linalg on tensors: MLIR's and StableHLO's own passes, as others that take them go on."""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.pipelines.rewrite_passes import STABLEHLO_SIZES
from fx_importer.pipelines.stage import Pass, Stage, on_functions

TO_LINALG: Mapping[str, Stage] = {
    "tosa": Stage(
        "tosa-to-linalg",
        "TOSA ops have become linalg, tensor, arith, math and scf.",
        (
            on_functions("tosa-to-scf"),  # before what takes no op of TOSA in a region
            on_functions("tosa-to-linalg-named", "canonicalize", "tosa-make-broadcastable", "tosa-to-linalg"),
            on_functions("tosa-to-tensor", "tosa-to-arith", "canonicalize", "cse"),
        ),
    ),
    "stablehlo": Stage(
        "stablehlo-to-linalg",
        "StableHLO ops have become linalg, tensor, arith, math and scf.",
        (
            STABLEHLO_SIZES,
            on_functions("stablehlo-legalize-to-linalg"),
            Pass("stablehlo-convert-to-signless"),  # after it, to which the sign of integers matters
            on_functions("canonicalize", "cse", "reconcile-unrealized-casts"),
        ),
    ),
}
"""By the dialect that a module holds."""
