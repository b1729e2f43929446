"""The decompositions for TOSA."""

from __future__ import annotations

from fx_importer.decompositions.backward import BACKWARD
from fx_importer.decompositions.complex import complex_operators
from fx_importer.decompositions.elementwise import (
    activations,
    arithmetic,
    bools,
    clamp,
    comparisons,
    division,
    extrema,
    float_classification,
    integers,
    low_precision,
    powers,
    signs,
)
from fx_importer.decompositions.fft.fourier import FOURIER
from fx_importer.decompositions.indexing import (
    combinations,
    indexing,
    nonzero,
    pad,
    repeat_interleave,
    scatter_reduce,
    strided_views,
)
from fx_importer.decompositions.linalg_dense import LINALG_DENSE
from fx_importer.decompositions.nn import adaptive_pooling, convolutions, embedding_bag, pooling
from fx_importer.decompositions.reduction import cumulative, histogram, norms, segment_reduce, sum_mean_prod
from fx_importer.decompositions.resize import antialias, nearest
from fx_importer.decompositions.sort import median, searchsorted, sorting, topk
from fx_importer.decompositions.special import SPECIAL, TOSA_SPECIAL, logarithms
from fx_importer.decompositions.tables.base import BASE

TOSA = (
    BASE.replacing(
        *scatter_reduce.REDUCING_SCATTERS,
        indexing.index_put_accumulating,
        because="TOSA's scatter adds nothing, and writes rows only",
    )
    .replacing(*scatter_reduce.SCATTER_VARIANTS, indexing.put, indexing.take, because="the dialect lacks it")
    .replacing(
        *(*pooling.POOLING, adaptive_pooling.adaptive_max_pool, adaptive_pooling.adaptive_avg_pool),
        because="TOSA has pools of two axes, without indices, dilation or windows over the edge",
    )
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
    .replacing(
        *cumulative.SCANS,
        *median.MEDIANS,
        *searchsorted.SEARCHES,
        because="the dialect lacks it, or no backend takes it",
    )
    .replacing(
        sorting.sort,
        sorting.stable_sort,
        topk.topk,
        topk.kthvalue,
        cumulative.cumprod_by_scan,
        because="TOSA has no sort, and no running products",
    )
    .replacing(*comparisons.SCALAR_COMPARISONS, because="the C++ lowering of eq compares with a number in float64")
    .replacing(
        *SPECIAL,
        *extrema.FMAX_FMIN,
        arithmetic.rsub_tensor,
        norms.vector_norm,
        *norms.DISTANCES,
        because="no backend takes it whole",
    )
    .replacing(*TOSA_SPECIAL, because="TOSA alone does not take it whole")
    .replacing(*LINALG_DENSE, norms.linalg_norm, because="the dialect lacks it")
    .replacing(*BACKWARD, because="it has no lowering, or of two axes only")
    .replacing(*FOURIER, because="the dialect lacks most of them")
    .replacing(strided_views.unfold, because="with sizes that are not known the C++ lowering does not end")
    .preferring(strided_views.diagonal_of_bools, because="the C++ lowering multiplies, which TOSA does not truths")
    .preferring(nearest.nearest, because="the C++ passes make it an __interpolate that has no lowering")
    .preferring(
        *clamp.TOSA_CLAMPS, activations.relu, because="a bound that is not given becomes the largest finite number"
    )
    .preferring(
        *(
            *float_classification.FLOAT_CLASSIFICATION,
            comparisons.isclose,
            *signs.SIGNS,
            activations.elu,
            activations.gelu,
        ),
        because="the C++ lowering is wrong at NaN, at infinities, or near zero",
    )
    .preferring(
        *division.division_rules(division.by_quotient, remainders=True),
        because="the C++ lowerings do not divide infinities, nor whole numbers",
    )
    .preferring(
        convolutions.transposed_grouped_or_dilated,
        because="TOSA's transposed convolution has no groups, and no dilation",
    )
    .preferring(convolutions.integer_convolution, because="TOSA convolves integers of 8 bits, and some of 16")
    .preferring(convolutions.grouped_conv3d, because="TOSA's convolution of three axes has no groups")
    .preferring(*norms.FLOAT_NORMS, because="the C++ lowering takes powers")
    .preferring(
        *powers.TOSA_POWERS, *logarithms.TOSA_EXPONENTIALS, because="undefined at a negative base, and at infinities"
    )
    .preferring(*low_precision.HALF_ACCUMULATION, because="the C++ lowerings accumulate in half precision")
    .preferring(
        *integers.INT32_ARITHMETIC,
        *integers.INT32_COMPARISONS,
        sum_mean_prod.sum_integers,
        sum_mean_prod.prod_integers,
        cumulative.cumsum_integers,
        clamp.clamp_integers,
        activations.relu_integers,
        division.remainder_integers,
        division.floor_divide_integers,
        integers.matmul_integers,
        because="TOSA has no such operation of integers, or C++ computes in too few bits",
    )
    .preferring(
        float_classification.isinf_floats,
        float_classification.isnan,
        comparisons.eq_bools,
        comparisons.ne_bools,
        arithmetic.add_bools,
        arithmetic.mul_bools,
        pad.pad_negative_widths,
        indexing.index_by_flat_indices,
        low_precision.convert_half_precision,
        because="the C++ lowering spells it as TOSA does not",
    )
    .preferring(*complex_operators.ALL_COMPLEX_OPERATORS, because="TOSA has no complex numbers: a rule for those")
    .preferring(*bools.BOOL_ACCUMULATION, because="the C++ lowerings add up single bits, or nothing")
    .preferring(*bools.BOOL_EXTREMA, because="the C++ lowerings compare truths as signed, or not at all")
)
