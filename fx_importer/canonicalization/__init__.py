"""An exported program in the normal form that the importer reads."""

from __future__ import annotations

from fx_importer.canonicalization.canonicalize import canonicalize
from fx_importer.canonicalization.constant_folding import fold_constants
from fx_importer.canonicalization.constant_sizes import settle_sizes
from fx_importer.canonicalization.item_to_tensor import positions_as_tensors
from fx_importer.canonicalization.legalization import Dtypes, legalize, legalize_graph
from fx_importer.canonicalization.outline_layers import outline_layers

__all__ = [
    "Dtypes",
    "canonicalize",
    "fold_constants",
    "legalize",
    "legalize_graph",
    "outline_layers",
    "positions_as_tensors",
    "settle_sizes",
]
