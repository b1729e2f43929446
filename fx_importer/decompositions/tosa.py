"""The decompositions for TOSA."""

from __future__ import annotations

from fx_importer.decompositions import indexing, scalars
from fx_importer.decompositions.base import BASE

TOSA = BASE.adding(
    indexing.index_put_of_leading_axes,  # the C++ lowering knows indices of the leading axes only
    *scalars.COMPARISONS,  # the C++ lowering of eq compares with a number in float64
)
