"""The decompositions for TOSA."""

from __future__ import annotations

from fx_importer.decompositions import (
    accumulating,
    complex_arithmetic,
    convolutions,
    counting,
    division,
    edges,
    halves,
    nearest,
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
    truths,
    windows,
)
from fx_importer.decompositions.backward import BACKWARD
from fx_importer.decompositions.base import BASE
from fx_importer.decompositions.dense import DENSE
from fx_importer.decompositions.fourier import FOURIER
from fx_importer.decompositions.integers import TOSA_INTEGERS
from fx_importer.decompositions.special import SPECIAL, TOSA_LACKS
from fx_importer.decompositions.tosa_gaps import TOSA_GAPS

TOSA = (
    BASE.replacing(*accumulating.ACCUMULATING, because="TOSA's scatter adds nothing, and writes rows only")
    .replacing(*accumulating.RENAMED, because="the dialect lacks it")
    .replacing(
        *pooling.POOLING, because="TOSA has pools of two axes, without indices, dilation or windows over the edge"
    )
    .replacing(*smooth_resizing.SMOOTH_RESIZING, because="the dialect lacks it")
    .replacing(*selecting.OF_KNOWN_SIZE, because="the dialect lacks it")
    .replacing(selecting.nonzero, because="of rank zero the C++ lowering ends the process")
    .replacing(*counting.COUNTING, because="the dialect lacks it, or no backend takes it")
    .replacing(*ordering.ORDERING, because="the dialect lacks it, or no backend takes it")
    .replacing(*sorting.SORTING, scans.kthvalue, because="TOSA has no sort, and no running products")
    .replacing(*scalars.COMPARISONS, because="the C++ lowering of eq compares with a number in float64")
    .replacing(*SPECIAL, because="no backend takes it whole")
    .replacing(*TOSA_LACKS, because="TOSA alone does not take it whole")
    .replacing(*DENSE, because="the dialect lacks it")
    .replacing(*BACKWARD, because="it has no lowering, or of two axes only")
    .replacing(*FOURIER, because="the dialect lacks most of them")
    .replacing(windows.unfold, because="with sizes that are not known the C++ lowering does not end")
    .preferring(windows.diagonal_of_truths, because="the C++ lowering multiplies, which TOSA does not truths")
    .preferring(nearest.nearest, because="the C++ passes make it an __interpolate that has no lowering")
    .preferring(*saturation.BOUNDS, because="a bound that is not given becomes the largest finite number")
    .preferring(
        *(*edges.COMMON, edges.elu, edges.gelu), because="the C++ lowering is wrong at NaN, at infinities, or near zero"
    )
    .preferring(
        *division.divisions(division.by_quotient, remainders=True),
        because="the C++ lowerings do not divide infinities, nor whole numbers",
    )
    .preferring(
        convolutions.transposed_by_groups, because="TOSA's transposed convolution has no groups, and no dilation"
    )
    .preferring(convolutions.of_integers, because="TOSA convolves integers of 8 bits, and some of 16")
    .preferring(convolutions.volumes_by_group, because="TOSA's convolution of three axes has no groups")
    .preferring(*norms.NORMS, because="the C++ lowering takes powers")
    .preferring(*powers.IN_TOSA, because="undefined at a negative base, and at infinities")
    .preferring(*halves.ACCUMULATING, because="the C++ lowerings accumulate in half precision")
    .preferring(*TOSA_INTEGERS, because="TOSA has no such operation of integers, or C++ computes in too few bits")
    .preferring(*TOSA_GAPS, because="the C++ lowering spells it as TOSA does not")
    .preferring(*complex_arithmetic.COMPLEX_ARITHMETIC, because="TOSA has no complex numbers: a rule for those")
    .preferring(*truths.ADDED_TRUTHS, because="the C++ lowerings add up single bits, or nothing")
    .preferring(*truths.LARGEST_TRUTHS, because="the C++ lowerings compare truths as signed, or not at all")
)
