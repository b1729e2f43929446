"""The decompositions for linalg on tensors."""

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
    low_precision,
    powers,
    signs,
)
from fx_importer.decompositions.fft.fourier import FOURIER
from fx_importer.decompositions.indexing import (
    combinations,
    indexing,
    masked,
    nonzero,
    pad,
    repeat_interleave,
    scatter_reduce,
    unique,
)
from fx_importer.decompositions.linalg_dense import LINALG_DENSE
from fx_importer.decompositions.nn import adaptive_pooling, embedding_bag, pooling
from fx_importer.decompositions.reduction import cumulative, histogram, norms, segment_reduce
from fx_importer.decompositions.resize import antialias
from fx_importer.decompositions.sort import median, searchsorted, sorting, topk
from fx_importer.decompositions.special import SPECIAL
from fx_importer.decompositions.tables.base import BASE

LINALG = (
    BASE.replacing(
        cumulative.cumsum,
        cumulative.cumprod,
        sorting.stable_sort_as_sort,
        topk.kthvalue,
        because="the C++ lowerings accumulate in half precision, and know one overload of sort",
    )
    .replacing(
        *cumulative.SCANS,
        *median.MEDIANS,
        *searchsorted.SEARCHES,
        because="the dialect lacks it, or no backend takes it",
    )
    .replacing(*scatter_reduce.SCATTER_VARIANTS, indexing.put, indexing.take, because="the dialect lacks it")
    .replacing(
        adaptive_pooling.adaptive_max_pool, because="the C++ lowering takes a batch only, and windows of one size"
    )
    .replacing(
        adaptive_pooling.adaptive_avg_pool,
        because="the C++ lowering divides in place, which MLIR's fusion repeats for each column of a product",
    )
    .preferring(*adaptive_pooling.ADAPTIVE_OF_DYNAMIC_SHAPE, because="the rule for sizes that are known is for those")
    .replacing(*antialias.ANTIALIASED_RESIZING, because="the dialect lacks it")
    .replacing(
        *(combinations.combinations, nonzero.nonzero_static, repeat_interleave.repeat_interleave),
        because="the dialect lacks it",
    )
    .replacing(
        *histogram.HISTOGRAMS,
        segment_reduce.segment_reduce,
        *embedding_bag.EMBEDDING_BAG,
        because="the dialect lacks it; and embedding_bag's C++ lowering of sums ignores the weights of samples",
    )
    .preferring(
        *complex_operators.BASIC_ARITHMETIC, because="the C++ lowering does not know that a number may be complex"
    )
    .replacing(indexing.index_put, because="the C++ lowering takes negative indices as they are")
    .replacing(indexing.index_int64, because="the C++ lowering mixes the types of indices")
    .preferring(
        indexing.index_of_dynamic_shape,
        because="the C++ lowering takes one index along an axis whose size is not known",
    )
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
    .replacing(*FOURIER, because="the dialect lacks most of them")
    .preferring(pad.pad_negative_widths, because="the C++ lowering leaves out a pad that keeps the size")
    .preferring(topk.topk_unsorted, because="the C++ lowerings know one order")
    .preferring(pooling.integer_max_pool3d, because="of integers, the C++ lowering ends the process")
    .preferring(pooling.max_pool2d, because="the C++ lowering says that NaN is at -1")
    .preferring(
        *(indexing.index_by_mask, masked.masked_select, nonzero.nonzero, *unique.UNIQUE),
        because="the C++ lowerings know nonzero of some rank, and end the process for the rest",
    )
    .preferring(
        *(
            *float_classification.FLOAT_CLASSIFICATION,
            comparisons.isclose,
            *signs.SIGNS,
            comparisons.eq_itself,
            division.reciprocal,
            arithmetic.neg_integers,
            activations.elu,
            activations.gelu,
            clamp.clamp_by_floats,
        ),
        because="the C++ lowering is wrong at NaN, at infinities, or next to zero",
    )
    .preferring(
        *division.division_rules(division.by_remainder, remainders=False),
        because="the C++ lowerings go through float64, and know one overload each",
    )
    .preferring(powers.power_of_tensors, because="the C++ lowering does not convert a whole base")
    .preferring(powers.power_of_integers, because="the C++ lowering knows powers of floats")
    .preferring(
        *map(arithmetic.for_int8, (arithmetic.sub, arithmetic.rsub, arithmetic.mul)),
        because="of small integers, the C++ lowerings end the process",
    )
    .preferring(*low_precision.HALF_ACCUMULATION, because="the C++ lowerings accumulate in half precision")
    .preferring(
        *complex_operators.COMPLEX_OPERATORS, because="the C++ lowerings know no complex numbers: a rule for those"
    )
    .preferring(*bools.BOOL_ACCUMULATION, because="the C++ lowerings add up single bits, or nothing")
    .preferring(*pooling.EXPLICIT_STRIDES, because="a C++ pass reads a stride that is not given behind the list's end")
    .preferring(*bools.BOOL_SORTS, *clamp.BOOL_CLAMPS, because="the C++ lowering compares truths as signed")
    .preferring(histogram.bincount, because="the C++ lowering takes integers of 64 bits")
)
