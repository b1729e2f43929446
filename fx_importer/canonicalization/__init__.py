"""An exported program in the normal form that the importer reads."""

from __future__ import annotations

from fx_importer.canonicalization.folding import fold_constants
from fx_importer.canonicalization.legalization import Dtypes, legalize, legalize_graph
from fx_importer.canonicalization.outlining import outline_layers
from fx_importer.canonicalization.positions import positions_as_tensors
from fx_importer.canonicalization.program import canonicalize
from fx_importer.canonicalization.settling import settle_sizes

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
