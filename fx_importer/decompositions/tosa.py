"""The decompositions for TOSA."""

from __future__ import annotations

from fx_importer.decompositions import scalars
from fx_importer.decompositions.base import BASE

TOSA = BASE.adding(
    *scalars.COMPARISONS,  # the C++ lowering of eq compares with a number in float64
)
