"""The decompositions for StableHLO."""

from __future__ import annotations

from fx_importer.decompositions.backward import BACKWARD
from fx_importer.decompositions.complex import complex_arithmetic, complex_conversions, complex_operators
from fx_importer.decompositions.elementwise import (
    arithmetic,
    bools,
    broadcasting,
    clamp,
    comparisons,
    division,
    extrema,
    float_classification,
    low_precision,
    powers,
    signs,
    unsigned,
)
from fx_importer.decompositions.fft.fourier import FOURIER
from fx_importer.decompositions.indexing import (
    combinations,
    indexing,
    nonzero,
    pad,
    repeat_interleave,
    reshape,
    scatter_reduce,
    strided_views,
)
from fx_importer.decompositions.linalg_dense import LINALG_DENSE
from fx_importer.decompositions.nn import adaptive_pooling, convolutions, embedding_bag, pooling
from fx_importer.decompositions.reduction import cumulative, histogram, norms, segment_reduce, sum_mean_prod
from fx_importer.decompositions.resize import antialias, nearest
from fx_importer.decompositions.sort import median, searchsorted, sorting, topk
from fx_importer.decompositions.special import SPECIAL, error_functions
from fx_importer.decompositions.tables.base import BASE
from fx_importer.fx_graph.operators import aten

STABLEHLO = (
    BASE.replacing(
        *arithmetic.SCALAR_ARITHMETIC,
        division.divide_by_scalar,
        powers.power_of_scalar,
        clamp.clamp_by_scalars,
        sum_mean_prod.mean,
        *comparisons.SCALAR_COMPARISONS,
        because="the C++ lowerings carry a number as an arith.constant of 64 bits",
    )
    .replacing(
        *cumulative.SCANS,
        *median.MEDIANS,
        *searchsorted.SEARCHES,
        because="the dialect lacks it, or no backend takes it",
    )
    .replacing(sorting.stable_sort_as_sort, topk.kthvalue, cumulative.cumprod_by_scan, because="it has no lowering")
    .replacing(*scatter_reduce.SCATTER_VARIANTS, indexing.put, indexing.take, because="the dialect lacks it")
    .replacing(scatter_reduce.scatter_reduce, because="it has no lowering")
    .replacing(adaptive_pooling.adaptive_max_pool, adaptive_pooling.adaptive_avg_pool, because="the dialect lacks it")
    .preferring(*adaptive_pooling.ADAPTIVE_OF_DYNAMIC_SHAPE, because="the rule for sizes that are known is for those")
    .replacing(*antialias.ANTIALIASED_RESIZING, because="the dialect lacks it")
    .replacing(
        *(combinations.combinations, nonzero.nonzero_static, repeat_interleave.repeat_interleave),
        because="the dialect lacks it",
    )
    .replacing(nonzero.nonzero, because="of rank zero the C++ lowering ends the process")
    .replacing(
        *histogram.HISTOGRAMS,
        segment_reduce.segment_reduce,
        *embedding_bag.EMBEDDING_BAG,
        because="the dialect lacks it, or no backend takes it",
    )
    .replacing(*strided_views.STRIDED_VIEWS, because="it has no lowering")
    .replacing(*unsigned.UNSIGNED, because="computed as if signed, or not at all")
    .replacing(indexing.index, indexing.index_put, because="the C++ lowerings take negative indices as they are")
    .preferring(indexing.index_by_mask, because="the C++ lowering takes a mask for the numbers 0 and 1")
    .replacing(
        *SPECIAL,
        *extrema.FMAX_FMIN,
        arithmetic.rsub_tensor,
        norms.vector_norm,
        *norms.DISTANCES,
        because="no backend takes it whole",
    )
    .replacing(*LINALG_DENSE, norms.linalg_norm, because="the dialect lacks it")
    .replacing(*BACKWARD, because="it has no lowering, or of two axes only")
    .replacing(*FOURIER, complex_arithmetic.conjugate, because="the dialect lacks most of them")
    .from_torch(
        *(aten.leaky_relu.default, aten.elu.default),
        because="the C++ lowerings carry the slope and the scales as arith.constants",
    )
    .preferring(*complex_operators.BASIC_ARITHMETIC_IN_PARTS, because="there is no C++ lowering of complex numbers")
    .preferring(nearest.nearest, because="the C++ passes make it an __interpolate that has no lowering")
    .preferring(
        reshape.squeeze_of_dynamic_shape, pad.pad_of_dynamic_shape, because="the C++ lowering takes known sizes only"
    )
    .preferring(error_functions.erf_of_integers, because="the C++ lowering takes floats only")
    .preferring(topk.topk_unsorted, because="the C++ lowerings know one order")
    .preferring(
        convolutions.transposed_with_uneven_output_padding,
        because="the C++ lowering mistakes the axes of the output padding",
    )
    .replacing(complex_conversions.view_as_complex, because="it has no lowering")
    .preferring(*broadcasting.BROADCASTING, because="the C++ lowerings do not broadcast, and end the process")
    .preferring(
        *clamp.BOOL_CLAMPS,
        *comparisons.BOOL_COMPARISONS,
        because="the C++ lowerings compare truths as signed, which XLA refuses",
    )
    .preferring(*norms.FLOAT_NORMS, because="of rank zero, and of a dtype that is given, the C++ lowering is not valid")
    .preferring(division.reciprocal_of_integers, because="the C++ lowering takes floats only")
    .preferring(clamp.clamp_mixed_dtypes, because="the C++ lowering takes bounds of one dtype only")
    .preferring(
        *float_classification.FLOAT_CLASSIFICATION,
        comparisons.isclose,
        *signs.SIGNS,
        because="the C++ lowering is wrong at NaN, at infinities, or next to zero",
    )
    .preferring(
        *division.division_rules(division.by_remainder, remainders=True), because="remainders have the dividend's sign"
    )
    .preferring(*low_precision.HALF_ACCUMULATION, because="the C++ lowerings accumulate in half precision")
    .preferring(
        *low_precision.in_float32(aten.cumsum.default, aten.cumprod.default, aten.gelu.default),
        because="the C++ lowerings compute it in half precision",
    )
    .preferring(*complex_operators.COMPLEX_OPERATORS, because="there is no C++ lowering of complex numbers")
    .preferring(*bools.BOOL_ACCUMULATION, because="the C++ lowerings add up single bits, or nothing")
    .preferring(*bools.BOOL_EXTREMA, because="the C++ lowerings compare truths as signed, or not at all")
    .preferring(*pooling.EXPLICIT_STRIDES, because="a C++ pass reads a stride that is not given behind the list's end")
)
