"""The decompositions for TOSA."""

from __future__ import annotations

from fx_importer.decompositions import (
    accumulating,
    counting,
    division,
    edges,
    halves,
    norms,
    ordering,
    pooling,
    powers,
    saturation,
    scalars,
    scans,
    selecting,
    smooth_resizing,
    sorting,
)
from fx_importer.decompositions.base import BASE
from fx_importer.decompositions.dense import DENSE
from fx_importer.decompositions.fourier import FOURIER
from fx_importer.decompositions.integers import TOSA_INTEGERS
from fx_importer.decompositions.special import SPECIAL, TOSA_LACKS
from fx_importer.decompositions.tosa_gaps import TOSA_GAPS

TOSA = (
    BASE.replacing(
        *accumulating.ACCUMULATING,  # its scatter adds nothing, and writes rows only
        *accumulating.RENAMED,  # the dialect lacks them
        *pooling.POOLING,  # it has pools of two axes, without indices, dilation or windows over the edge
        *smooth_resizing.SMOOTH_RESIZING,  # the dialect lacks them
        *selecting.OF_KNOWN_SIZE,  # the dialect lacks them
        selecting.nonzero,  # of rank zero the C++ lowering ends the process
        *counting.COUNTING,  # the dialect lacks them, or no backend takes them
        *ordering.ORDERING,  # the dialect lacks them, or no backend takes them
        *sorting.SORTING,  # it has no sort, and no running products
        scans.kthvalue,  # the same
        *scalars.COMPARISONS,  # the C++ lowering of eq compares with a number in float64
        *SPECIAL,  # no backend takes them whole
        *TOSA_LACKS,  # it alone does not take them whole
        *DENSE,  # the dialect lacks them
        *FOURIER,  # the same, of most
    )
    .preferring(
        *saturation.BOUNDS,  # a bound that is not given becomes the largest finite number
        *(*edges.COMMON, edges.elu, edges.gelu),  # see there
        *division.divisions(division.by_quotient, remainders=True),  # not of infinities, nor of whole numbers
        *norms.NORMS,  # by powers
        *powers.IN_TOSA,  # undefined at a negative base, and at infinities
    )
    .preferring(*halves.ACCUMULATING)  # the C++ lowerings accumulate in half precision
    .preferring(*TOSA_INTEGERS, *TOSA_GAPS)
)
