"""The decomposition table of linalg on tensors."""

from __future__ import annotations

from fx_importer.decompositions.elementwise import (
    activations,
    arithmetic,
    bit_views,
    clamp,
    comparisons,
    division,
    float_classification,
    powers,
    signs,
)
from fx_importer.decompositions.emulation import bools, integers, low_precision, promotion, rank_zero
from fx_importer.decompositions.emulation.complex.operators import BASIC_ARITHMETIC, COMPLEX_OPERATORS
from fx_importer.decompositions.indexing import (
    factories,
    index_add,
    index_put,
    indexing,
    masked,
    nonzero,
    pad,
    repeat_interleave,
    scatter_reduce,
    strided_views,
    unique,
)
from fx_importer.decompositions.nn import adaptive_pooling, convolutions, embedding_bag, pooling
from fx_importer.decompositions.reduction import cumulative, histogram, segment_reduce
from fx_importer.decompositions.resize import smooth
from fx_importer.decompositions.sort import sorting
from fx_importer.decompositions.tables.lowered import LOWERED

LINALG = (
    LOWERED.replacing(
        cumulative.cumsum,
        cumulative.cumprod,
        sorting.stable_sort_as_sort,
        sorting.kthvalue,
        because="the C++ lowerings accumulate in low precision, and support one overload of sort",
    )
    .preferring(scatter_reduce.scatter_mean_of_integers, because="the C++ lowering rounds towards zero")
    .replacing(adaptive_pooling.adaptive_max_pool, because="the C++ lowering requires a batch, and windows of one size")
    .replacing(
        adaptive_pooling.adaptive_avg_pool,
        because="the C++ lowering divides in place; MLIR's fusion repeats that for each column of a matmul",
    )
    .preferring(*adaptive_pooling.ADAPTIVE_OF_DYNAMIC_SHAPE, because="the other rule requires static shapes")
    .replacing(repeat_interleave.repeat_interleave_of_any_size, because="the torch dialect lacks it")
    .preferring(repeat_interleave.repeat_interleave, because="of a static size, it needs no scatter")
    .replacing(
        *histogram.HISTOGRAMS,
        segment_reduce.segment_reduce,
        *embedding_bag.EMBEDDING_BAG_BY_ROWS,
        because="the torch dialect lacks it; and the C++ lowering of embedding_bag sums ignores per_sample_weights",
    )
    .preferring(*BASIC_ARITHMETIC, because="the C++ lowering does not support complex dtypes")
    .replacing(index_put.index_put, because="the C++ lowering does not wrap negative indices")
    .replacing(index_put.index_copy, because="torch's decomposition hides that indices are not negative")
    .replacing(index_add.index_add_by_writes, because="torch's decomposition wraps negative indices")
    .replacing(
        index_put.max_unpool, because="torch's decomposition takes negative indices, and those of the next image"
    )
    .replacing(index_put.index_fill, because="torch's decomposition writes at negative indices by index_copy")
    .replacing(indexing.index_int64, because="the C++ lowering mixes the integer types of indices")
    .preferring(
        indexing.index_of_dynamic_shape,
        because="the C++ lowering supports one index along a dynamic axis",
    )
    .preferring(strided_views.reshape_of_empty, because="the C++ lowering divides by zero")
    .preferring(pad.pad_negative_widths, because="the C++ lowering drops a pad that keeps the size")
    .preferring(
        sorting.topk_of_short_rows,
        because="IREE runs the loops of a sort as one dispatch for each element, and reads outside of their buffers",
    )
    .preferring(sorting.topk_unsorted, because="the C++ lowerings support sorted=True only")
    .preferring(factories.arange_int8, because="the C++ lowering crashes on 8-bit integers")
    .preferring(
        *(pooling.max_pool2d, pooling.max_pool3d_with_own_values),
        because="the C++ lowerings return index -1 for NaN, and that of three axes crashes on integers",
    )
    .preferring(
        *(indexing.index_by_mask, masked.masked_select, nonzero.nonzero, *unique.UNIQUE),
        because="the C++ lowerings support nonzero of some ranks, and crash on the others",
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
            clamp.clamp_by_floats,
            clamp.clamp_beyond_the_dtype,
        ),
        because="the C++ lowering is wrong at NaN, infinities or near zero",
    )
    .preferring(
        *division.division_rules(division.by_remainder, remainders=False),
        because="the C++ lowerings compute in float64, and support one overload each",
    )
    .preferring(powers.power_of_tensors, because="the C++ lowering does not convert an integer base")
    .preferring(powers.power_of_integers, because="the C++ lowering supports floats only")
    .preferring(
        *map(arithmetic.for_int8, (arithmetic.sub, arithmetic.rsub, arithmetic.mul)),
        because="the C++ lowerings crash on small integers",
    )
    .preferring(*low_precision.HALF_ACCUMULATION, because="the C++ lowerings accumulate in low precision")
    .preferring(*low_precision.WIDE_FACTORS, because="the factor would be rounded to half precision")
    .preferring(*COMPLEX_OPERATORS, because="the C++ lowerings do not support complex dtypes")
    .preferring(bools.add_bools, because="the C++ lowering adds bools in one bit")
    .preferring(*bools.BOOL_ACCUMULATION, because="the C++ lowerings accumulate bools in one bit, or not at all")
    .preferring(
        convolutions.transposed_groups,
        convolutions.volumes_by_groups,
        convolutions.volumes_by_planes,
        because="the C++ lowering of transposed depthwise convolutions is invalid, and of depthwise volumes missing",
    )
    .preferring(pooling.avg_pool2d_by_constants, because="the C++ lowering computes the sizes of windows in each call")
    .preferring(*pooling.EXPLICIT_STRIDES, because="a C++ pass reads past the end of an empty stride list")
    .preferring(*pooling.UNBATCHED, because="the C++ lowerings require a batch")
    .preferring(*integers.INT8_IN_INT32, because="the C++ lowering ends the process on 8-bit integers")
    .preferring(
        *bools.BOOL_SORTS,
        *bools.BOOL_EXTREMA,
        *bools.BOOL_CLAMPS,
        because="the C++ lowering compares bools as signed integers",
    )
    .preferring(histogram.bincount, because="the C++ lowering supports int64 only")
    .preferring(histogram.weighted_bincount, because="the C++ lowering has no weights")
    .preferring(low_precision.convert_small_floats, because="LLVM has no fp8")
    .replacing(bit_views.view_of_bits, because="the C++ lowerings support one width, or none")
    .preferring(
        *promotion.PROMOTIONS,
        because="the C++ lowerings compute operands of different dtypes in one of them, unpromoted",
    )
    .preferring(*smooth.BYTE_RESIZING, because="torch's rules compute in float32, and eager in fixed point")
    .preferring(*rank_zero.RANK_ZERO_INDICES, because="the C++ lowerings and our rules take an index per axis")
)
