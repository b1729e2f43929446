"""The decompositions for StableHLO."""

from __future__ import annotations

import torch

from fx_importer.decompositions import (
    accumulating,
    complex_numbers,
    counting,
    division,
    edges,
    halves,
    indexing,
    ordering,
    pooling,
    scalars,
    scans,
    selecting,
    smooth_resizing,
    sorting,
    unsigned,
    windows,
)
from fx_importer.decompositions.base import BASE
from fx_importer.decompositions.dense import DENSE
from fx_importer.decompositions.fourier import FOURIER
from fx_importer.decompositions.special import SPECIAL

aten = torch.ops.aten

STABLEHLO = (
    BASE.replacing(
        *scalars.ARITHMETIC,  # the C++ lowerings carry a number as an arith.constant of 64 bits
        *scalars.COMPARISONS,  # the same
        *ordering.ORDERING,  # the dialect lacks them, or no backend takes them
        *(scans.stable_sort, scans.kthvalue, sorting.cumprod),  # the C++ lowerings lack them
        *accumulating.RENAMED,  # the dialect lacks them
        accumulating.scatter_reduce,  # it has no lowering
        *pooling.POOLING,  # the C++ lowerings lack some, and have others wrong: over the edge, of three axes
        *smooth_resizing.SMOOTH_RESIZING,  # the dialect lacks them
        *selecting.OF_KNOWN_SIZE,  # the dialect lacks them
        selecting.nonzero,  # of rank zero the C++ lowering ends the process
        *counting.COUNTING,  # the dialect lacks them, or no backend takes them
        *windows.WINDOWS,  # it has no lowering
        *unsigned.UNSIGNED,  # computed as if signed, or not at all
        *(indexing.index, indexing.index_put),  # the C++ lowerings take negative indices as they are
        *SPECIAL,  # no backend takes them whole
        *DENSE,  # the dialect lacks them
        *FOURIER,  # the same, of most
        complex_numbers.conjugate,  # the same
    )
    .from_torch(
        aten.leaky_relu.default,  # the same, of the slope
        aten.elu.default,  # the same, of the scales
    )
    .preferring(
        *edges.COMMON,  # see there
        *division.divisions(division.by_remainder, remainders=True),  # remainders have the sign of the dividend
        *halves.ACCUMULATING,  # the C++ lowerings accumulate in half precision
        *halves.in_float32(aten.cumsum.default, aten.cumprod.default, aten.gelu.default),  # the same
    )
)
