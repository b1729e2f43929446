"""Rewrites of StableHLO: sizes and numbers in its own operations, and no operation that does nothing."""

from __future__ import annotations

from fx_importer.rewrites.stablehlo.complex_numbers import complex_parts_to_stablehlo
from fx_importer.rewrites.stablehlo.noise import without_noise
from fx_importer.rewrites.stablehlo.numbers import numbers_to_stablehlo
from fx_importer.rewrites.stablehlo.operators import operators_to_stablehlo
from fx_importer.rewrites.stablehlo.sizes import sizes_to_tensor

__all__ = [
    "complex_parts_to_stablehlo",
    "numbers_to_stablehlo",
    "operators_to_stablehlo",
    "sizes_to_tensor",
    "without_noise",
]
