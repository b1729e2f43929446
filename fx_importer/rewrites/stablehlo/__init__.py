"""Rewrites of StableHLO: sizes and numbers in its own operations, and no operation that does nothing."""

from __future__ import annotations

from fx_importer.rewrites.stablehlo.complex_parts import complex_parts_to_stablehlo
from fx_importer.rewrites.stablehlo.dynamic_sizes_to_tensor import sizes_to_tensor
from fx_importer.rewrites.stablehlo.operators import operators_to_stablehlo
from fx_importer.rewrites.stablehlo.scalar_legalization import numbers_to_stablehlo
from fx_importer.rewrites.stablehlo.stablehlo_no_ops import without_noise

__all__ = [
    "complex_parts_to_stablehlo",
    "numbers_to_stablehlo",
    "operators_to_stablehlo",
    "sizes_to_tensor",
    "without_noise",
]
