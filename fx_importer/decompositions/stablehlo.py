"""The decompositions for StableHLO."""

from __future__ import annotations

from fx_importer.decompositions import (
    accumulating,
    adaptive,
    broadcasting,
    complex_arithmetic,
    complex_numbers,
    convolutions,
    counting,
    division,
    edges,
    halves,
    indexing,
    nearest,
    norms,
    ordering,
    pooling,
    scalars,
    scans,
    selecting,
    shapes,
    smooth_resizing,
    sorting,
    truths,
    unsigned,
    windows,
)
from fx_importer.decompositions.backward import BACKWARD
from fx_importer.decompositions.base import BASE
from fx_importer.decompositions.dense import DENSE
from fx_importer.decompositions.fourier import FOURIER
from fx_importer.decompositions.special import SPECIAL
from fx_importer.operators import aten

STABLEHLO = (
    BASE.replacing(
        *scalars.ARITHMETIC,
        *scalars.COMPARISONS,
        because="the C++ lowerings carry a number as an arith.constant of 64 bits",
    )
    .replacing(*ordering.ORDERING, because="the dialect lacks it, or no backend takes it")
    .replacing(scans.stable_sort, scans.kthvalue, sorting.cumprod, because="it has no lowering")
    .replacing(*accumulating.RENAMED, because="the dialect lacks it")
    .replacing(accumulating.scatter_reduce, because="it has no lowering")
    .replacing(pooling.adaptive_max_pool, pooling.adaptive_avg_pool, because="the dialect lacks it")
    .preferring(*adaptive.ADAPTIVE, because="the rule for sizes that are known is for those")
    .replacing(*smooth_resizing.SMOOTH_RESIZING, because="the dialect lacks it")
    .replacing(*selecting.OF_KNOWN_SIZE, because="the dialect lacks it")
    .replacing(selecting.nonzero, because="of rank zero the C++ lowering ends the process")
    .replacing(*counting.COUNTING, because="the dialect lacks it, or no backend takes it")
    .replacing(*windows.WINDOWS, because="it has no lowering")
    .replacing(*unsigned.UNSIGNED, because="computed as if signed, or not at all")
    .replacing(indexing.index, indexing.index_put, because="the C++ lowerings take negative indices as they are")
    .preferring(selecting.index_by_mask, because="the C++ lowering takes a mask for the numbers 0 and 1")
    .replacing(*SPECIAL, because="no backend takes it whole")
    .replacing(*DENSE, because="the dialect lacks it")
    .replacing(*BACKWARD, because="it has no lowering, or of two axes only")
    .replacing(*FOURIER, complex_numbers.conjugate, because="the dialect lacks most of them")
    .from_torch(
        *(aten.leaky_relu.default, aten.elu.default),
        because="the C++ lowerings carry the slope and the scales as arith.constants",
    )
    .preferring(*complex_numbers.IN_PARTS, because="there is no C++ lowering of complex numbers")
    .preferring(nearest.nearest, because="the C++ passes make it an __interpolate that has no lowering")
    .preferring(shapes.squeeze_all, shapes.pad_of_any_size, because="the C++ lowering takes known sizes only")
    .preferring(edges.erf_of_integers, because="the C++ lowering takes floats only")
    .preferring(ordering.topk_in_any_order, because="the C++ lowerings know one order")
    .preferring(convolutions.transposed_unevenly, because="the C++ lowering mistakes the axes of the output padding")
    .replacing(complex_numbers.view_as_complex, because="it has no lowering")
    .preferring(*broadcasting.BROADCASTING, because="the C++ lowerings do not broadcast, and end the process")
    .preferring(*truths.ORDER_OF_TRUTHS, because="the C++ lowerings compare truths as signed, which XLA refuses")
    .preferring(*norms.NORMS, because="of rank zero, and of a dtype that is given, the C++ lowering is not valid")
    .preferring(edges.reciprocal_of_integers, because="the C++ lowering takes floats only")
    .preferring(edges.clamp_between, because="the C++ lowering takes bounds of one dtype only")
    .preferring(*edges.COMMON, because="the C++ lowering is wrong at NaN, at infinities, or next to zero")
    .preferring(
        *division.divisions(division.by_remainder, remainders=True), because="remainders have the dividend's sign"
    )
    .preferring(*halves.ACCUMULATING, because="the C++ lowerings accumulate in half precision")
    .preferring(
        *halves.in_float32(aten.cumsum.default, aten.cumprod.default, aten.gelu.default),
        because="the C++ lowerings compute it in half precision",
    )
    .preferring(*complex_arithmetic.BEYOND_PRODUCTS, because="there is no C++ lowering of complex numbers")
    .preferring(*truths.ADDED_TRUTHS, because="the C++ lowerings add up single bits, or nothing")
    .preferring(*truths.LARGEST_TRUTHS, because="the C++ lowerings compare truths as signed, or not at all")
    .preferring(*pooling.STRIDES_IN_FULL, because="a C++ pass reads a stride that is not given behind the list's end")
)
