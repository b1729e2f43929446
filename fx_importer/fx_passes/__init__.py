"""Canonicalization of exported programs to the normal form that the importer reads."""

from __future__ import annotations

from fx_importer.fx_passes.as_strided import resolve_strides
from fx_importer.fx_passes.axis_of_cross import fix_axis_of_cross
from fx_importer.fx_passes.canonicalize import canonicalize
from fx_importer.fx_passes.constant_folding import fold_constants
from fx_importer.fx_passes.constant_sizes import fold_constant_sizes
from fx_importer.fx_passes.legalization import Dtypes, computed_narrower, legalize, legalize_graph
from fx_importer.fx_passes.numbers_to_tensors import numbers_to_tensors, with_number_results
from fx_importer.fx_passes.outline_layers import outline_layers
from fx_importer.fx_passes.overlapping_writes import refuse_overlapping_writes
from fx_importer.fx_passes.sizes_of_one import fold_sizes_of_one
from fx_importer.fx_passes.sizes_to_tensors import sizes_to_tensors

__all__ = [
    "Dtypes",
    "canonicalize",
    "computed_narrower",
    "fix_axis_of_cross",
    "fold_constant_sizes",
    "fold_constants",
    "fold_sizes_of_one",
    "legalize",
    "legalize_graph",
    "numbers_to_tensors",
    "outline_layers",
    "refuse_overlapping_writes",
    "resolve_strides",
    "sizes_to_tensors",
    "with_number_results",
]
