"""The decompositions for TOSA."""

from __future__ import annotations

from fx_importer.decompositions import accumulating, counting, ordering, scalars, scans, sorting
from fx_importer.decompositions.base import BASE
from fx_importer.decompositions.dense import DENSE
from fx_importer.decompositions.integers import TOSA_INTEGERS
from fx_importer.decompositions.special import SPECIAL
from fx_importer.decompositions.tosa_gaps import TOSA_GAPS

TOSA = BASE.replacing(
    *accumulating.ACCUMULATING,  # its scatter adds nothing, and writes rows only
    *accumulating.RENAMED,  # the dialect lacks them
    *counting.COUNTING,  # the dialect lacks them, or no backend takes them
    *ordering.ORDERING,  # the dialect lacks them, or no backend takes them
    *sorting.SORTING,  # it has no sort, and no running products
    scans.kthvalue,  # the same
    *DENSE,  # the dialect lacks them
    *scalars.COMPARISONS,  # the C++ lowering of eq compares with a number in float64
    *TOSA_INTEGERS,
    *TOSA_GAPS,
    *SPECIAL,  # no backend takes them whole
)
