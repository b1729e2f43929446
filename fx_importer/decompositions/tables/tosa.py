"""The decomposition table of TOSA."""

from __future__ import annotations

from fx_importer.decompositions.elementwise import (
    activations,
    bit_views,
    clamp,
    comparisons,
    division,
    float_classification,
    powers,
    signs,
)
from fx_importer.decompositions.emulation import bools, integers, low_precision, promotion, rank_zero
from fx_importer.decompositions.emulation.complex.operators import ALL_COMPLEX_OPERATORS
from fx_importer.decompositions.indexing import (
    factories,
    index_add,
    index_put,
    indexing,
    last_writes,
    nonzero,
    pad,
    repeat_interleave,
    scatter_reduce,
    strided_views,
    unique,
)
from fx_importer.decompositions.nn import adaptive_pooling, convolutions, embedding_bag, normalization, pooling
from fx_importer.decompositions.random import distributions
from fx_importer.decompositions.reduction import (
    arg_extrema,
    cumulative,
    histogram,
    norms,
    segment_reduce,
    sum_mean_prod,
)
from fx_importer.decompositions.resize import nearest, smooth
from fx_importer.decompositions.sort import sorting
from fx_importer.decompositions.special import TOSA_SPECIAL, logarithms
from fx_importer.decompositions.tables.lowered import LOWERED

TOSA = (
    LOWERED.replacing(
        *scatter_reduce.REDUCING_SCATTERS,
        index_add.index_add,
        index_put.index_put_of_leading_axes,
        last_writes.scatter,
        because="TOSA's scatter writes whole rows, each at most once, without a reduction",
    )
    .preferring(index_put.index_put_of_last_writes)
    .replacing(
        *(*pooling.POOLING, adaptive_pooling.adaptive_max_pool, adaptive_pooling.adaptive_avg_pool),
        because="TOSA has 2-D pools only, without indices, dilation or windows that overlap the border",
    )
    .replacing(repeat_interleave.repeat_interleave, because="the torch dialect lacks it")
    .replacing(nonzero.nonzero, because="the C++ lowering crashes on rank zero")
    .replacing(*unique.UNIQUE, because="it has no lowering")
    .replacing(
        *histogram.HISTOGRAMS,
        segment_reduce.segment_reduce,
        *embedding_bag.EMBEDDING_BAG,
        because="the torch dialect or every backend lacks it",
    )
    .replacing(
        sorting.sort,
        sorting.stable_sort,
        sorting.topk,
        sorting.kthvalue,
        cumulative.cumprod_by_scan,
        because="TOSA has no sort and no cumulative product",
    )
    .replacing(*comparisons.SCALAR_COMPARISONS, because="the C++ lowering of eq compares with a float64 scalar")
    .replacing(*TOSA_SPECIAL, because="TOSA, unlike the other backends, does not support it")
    .replacing(strided_views.unfold, because="the C++ lowering of dynamic shapes does not terminate")
    .replacing(strided_views.diagonal, because="the C++ lowering sums products with zero, NaN for infinities")
    .preferring(nearest.nearest, because="the C++ passes rewrite it to an __interpolate that has no lowering")
    .preferring(
        *clamp.TOSA_CLAMPS,
        activations.relu,
        because="an absent bound becomes the largest finite number",
    )
    .preferring(
        *(
            *float_classification.FLOAT_CLASSIFICATION,
            comparisons.isclose,
            *signs.TOSA_SIGNS,
            activations.elu,
            activations.gelu,
        ),
        because="the C++ lowering is wrong at NaN, infinities or near zero",
    )
    .preferring(
        *division.division_rules(division.by_quotient, remainders=True),
        because="the C++ lowerings are wrong at infinities, and do not support integers",
    )
    .preferring(
        division.divide_integers_by_number,
        because="the C++ lowering cuts off the fraction of the number, and supports int32 and int64 only",
    )
    .preferring(
        convolutions.transposed_grouped_or_dilated,
        because="TOSA's transposed convolution has neither groups nor dilation",
    )
    .preferring(
        convolutions.transposed_volumes_that_crop, because="the C++ lowering takes no padding beyond the kernel"
    )
    .preferring(
        convolutions.transposed_volumes_of_dynamic_size,
        *adaptive_pooling.ADAPTIVE_OF_DYNAMIC_SHAPE,
        because="the C++ lowering needs static sizes",
    )
    .preferring(convolutions.integer_convolution, because="TOSA convolves int8, and int16 in part")
    .preferring(
        convolutions.images_by_many_groups,
        convolutions.volumes_by_groups,
        convolutions.depthwise_volumes_by_planes,
        because="TOSA's conv3d has no groups, and C++ lowers few of conv2d",
    )
    .preferring(
        indexing.index_of_adjacent_axes,
        convolutions.conv1d_of_dynamic_shape,
        strided_views.slice_scatter_along_dynamic_axis,
        strided_views.slice_scatter_beside_dynamic_axes,
        sum_mean_prod.mean_of_dynamic_axes,
        cumulative.cumsum_beside_dynamic_axes,
        cumulative.cumsum_along_dynamic_axis,
        factories.empty_of_dynamic_shape,
        factories.empty_like_of_dynamic_shape,
        because="the C++ lowering needs static sizes",
    )
    .preferring(
        indexing.index_by_rows,
        indexing.index_select_by_rows,
        because="the C++ lowering computes the place of each element, along one more axis",
    )
    .preferring(
        normalization.group_norm_of_images,
        normalization.native_group_norm_of_images,
        because="TOSA's convolutions have channels last",
    )
    .preferring(*norms.FLOAT_NORMS, because="the C++ lowering emits powers")
    .preferring(
        *powers.TOSA_POWERS,
        *logarithms.TOSA_EXPONENTIALS,
        because="undefined for a negative base and for infinities",
    )
    .preferring(*low_precision.HALF_ACCUMULATION, because="the C++ lowerings accumulate in low precision")
    .preferring(*low_precision.WIDE_FACTORS, because="the factor would be rounded to half precision")
    .preferring(
        *integers.INT32_ARITHMETIC,
        *integers.INT32_COMPARISONS,
        sum_mean_prod.sum_integers,
        sum_mean_prod.prod_integers,
        cumulative.cumsum_integers,
        cumulative.cumsum_in_narrow_integers,
        clamp.clamp_integers,
        clamp.hardtanh_of_integers,
        activations.relu_integers,
        integers.matmul_integers,
        because="TOSA has no such integer operation, or the C++ lowering computes in too few bits",
    )
    .preferring(
        float_classification.isinf_floats,
        float_classification.isnan,
        bools.eq_bools,
        bools.ne_bools,
        bools.add_bools,
        bools.mul_bools,
        pad.pad_negative_widths,
        pad.pad_of_booleans,
        pad.pad_of_int16,
        low_precision.convert_half_precision,
        low_precision.convert_fp8_by_float32,
        because="the C++ lowering emits it in a form that TOSA does not allow",
    )
    .preferring(
        *distributions.FROM_UNIFORM_AND_NORMAL,
        because="the C++ lowerings draw the same numbers for each, or compute in float64",
    )
    .preferring(*ALL_COMPLEX_OPERATORS, because="TOSA has no complex dtypes")
    .preferring(*bools.BOOL_ACCUMULATION, because="the C++ lowerings accumulate bools in one bit, or not at all")
    .preferring(*arg_extrema.ARG_EXTREMA, because="the C++ lowering compares integers as float32")
    .preferring(*bools.BOOL_EXTREMA, because="the C++ lowerings compare bools as signed integers, or not at all")
    .preferring(*pooling.UNBATCHED, because="TOSA's pools require a batch")
    .preferring(low_precision.saturate_e4m3fn, because="its conversion to f8E4M3FN does not saturate")
    .preferring(clamp.clamp_beyond_the_dtype, because="bounds that the dtype does not have would wrap around")
    .replacing(bit_views.tosa_view_of_bits, because="TOSA has no operator that reads bits")
    .preferring(
        *promotion.PROMOTIONS,
        because="the C++ lowerings compute operands of different dtypes in one of them, unpromoted",
    )
    .preferring(*smooth.BYTE_RESIZING, because="torch's rules compute in float32, and eager in fixed point")
    .preferring(*rank_zero.RANK_ZERO_INDICES, because="the C++ lowerings and our rules take an index per axis")
)
