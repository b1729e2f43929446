"""The decompositions for TOSA."""

from __future__ import annotations

from fx_importer.decompositions import indexing, scalars
from fx_importer.decompositions.base import BASE
from fx_importer.decompositions.integers import TOSA_INTEGERS
from fx_importer.decompositions.special import SPECIAL
from fx_importer.decompositions.tosa_gaps import TOSA_GAPS

TOSA = BASE.replacing(
    indexing.index_put_of_leading_axes,  # the C++ lowering knows indices of the leading axes only
    *scalars.COMPARISONS,  # the C++ lowering of eq compares with a number in float64
    *TOSA_INTEGERS,
    *TOSA_GAPS,
    *SPECIAL,  # no backend takes them whole
)
