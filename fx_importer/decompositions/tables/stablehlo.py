"""The decomposition table of StableHLO."""

from __future__ import annotations

from fx_importer.decompositions import collectives
from fx_importer.decompositions.elementwise import (
    arithmetic,
    bit_views,
    clamp,
    comparisons,
    division,
    float_classification,
    powers,
    signs,
)
from fx_importer.decompositions.emulation import bools, broadcasting, low_precision, promotion, rank_zero, unsigned
from fx_importer.decompositions.emulation.complex.arithmetic import conjugate
from fx_importer.decompositions.emulation.complex.operators import BASIC_ARITHMETIC_IN_PARTS, COMPLEX_OPERATORS
from fx_importer.decompositions.emulation.complex.parts import view_as_complex
from fx_importer.decompositions.indexing import (
    index_put,
    indexing,
    nonzero,
    pad,
    repeat_interleave,
    reshape,
    scatter_reduce,
    strided_views,
    unique,
)
from fx_importer.decompositions.nn import adaptive_pooling, convolutions, embedding_bag, pooling
from fx_importer.decompositions.reduction import cumulative, histogram, norms, segment_reduce, sum_mean_prod
from fx_importer.decompositions.resize import nearest, smooth
from fx_importer.decompositions.sort import sorting
from fx_importer.decompositions.special import error_functions
from fx_importer.decompositions.tables.lowered import LOWERED
from fx_importer.fx_graph.operators import aten

STABLEHLO = (
    LOWERED.replacing(
        *arithmetic.SCALAR_ARITHMETIC,
        division.divide_by_scalar,
        powers.power_of_scalar,
        clamp.clamp_by_scalars,
        sum_mean_prod.mean,
        *comparisons.SCALAR_COMPARISONS,
        because="the C++ lowerings emit a scalar as a 64-bit arith.constant",
    )
    .replacing(sorting.stable_sort_as_sort, sorting.kthvalue, cumulative.cumprod_by_scan, because="it has no lowering")
    .replacing(scatter_reduce.scatter_reduce, because="it has no lowering")
    .replacing(
        adaptive_pooling.adaptive_max_pool, adaptive_pooling.adaptive_avg_pool, because="the torch dialect lacks it"
    )
    .preferring(division.divide_integers_by_number, because="divide_by_scalar has the number in the integers' dtype")
    .preferring(*adaptive_pooling.ADAPTIVE_OF_DYNAMIC_SHAPE, because="the other rule requires static shapes")
    .replacing(repeat_interleave.repeat_interleave, because="the torch dialect lacks it")
    .replacing(nonzero.nonzero, because="the C++ lowering crashes on rank zero")
    .replacing(*unique.UNIQUE, because="it has no lowering")
    .replacing(*collectives.COLLECTIVES, because="collectives of one tensor are lowered, and have no gradients then")
    .replacing(
        *histogram.HISTOGRAMS,
        segment_reduce.segment_reduce,
        *embedding_bag.EMBEDDING_BAG,
        because="the torch dialect or every backend lacks it",
    )
    .preferring(embedding_bag.embedding_without_flags, because="the C++ lowering takes no flags of gradients")
    .replacing(*strided_views.STRIDED_VIEWS, because="it has no lowering")
    .replacing(*unsigned.UNSIGNED, because="the C++ lowering computes it as signed, or not at all")
    .replacing(indexing.index, index_put.index_put, because="the C++ lowerings do not wrap negative indices")
    .replacing(index_put.index_copy, because="torch's decomposition hides that indices are not negative")
    .replacing(index_put.index_fill, because="torch's decomposition writes at negative indices by index_copy")
    .preferring(strided_views.slice_scatter_with_step, because="the C++ lowering needs static sizes")
    .preferring(indexing.index_by_mask, because="the C++ lowering reads a mask as indices 0 and 1")
    .preferring(
        indexing.index_of_dynamic_shape,
        indexing.index_of_adjacent_axes,
        because="the C++ lowering has no slices of unknown sizes",
    )
    .preferring(indexing.index_of_inner_axes, because="the C++ lowering reads each element at an index of each axis")
    .replacing(conjugate, because="the torch dialect lacks most FFT operators")
    .from_torch(
        *(aten.leaky_relu.default, aten.elu.default),
        because="the C++ lowerings emit the slope and the scales as arith.constants",
    )
    .preferring(*BASIC_ARITHMETIC_IN_PARTS, because="it has no C++ lowering of complex dtypes")
    .preferring(nearest.nearest, because="the C++ passes rewrite it to an __interpolate that has no lowering")
    .preferring(
        reshape.squeeze_of_dynamic_shape,
        pad.pad_of_dynamic_shape,
        because="the C++ lowering supports static shapes only",
    )
    .preferring(error_functions.erf_of_integers, because="the C++ lowering supports floats only")
    .preferring(sorting.topk_unsorted, because="the C++ lowerings support sorted=True only")
    .preferring(
        convolutions.transposed_with_uneven_output_padding,
        because="the C++ lowering confuses the axes of the output padding",
    )
    .replacing(view_as_complex, because="it has no lowering")
    .preferring(*broadcasting.BROADCASTING, because="the C++ lowerings do not broadcast, and crash")
    .preferring(
        *bools.BOOL_CLAMPS,
        *bools.BOOL_COMPARISONS,
        because="the C++ lowerings compare bools as signed integers, which XLA rejects",
    )
    .preferring(*norms.FLOAT_NORMS, because="the C++ lowering of rank zero, or with a dtype argument, is invalid")
    .preferring(division.reciprocal_of_integers, because="the C++ lowering supports floats only")
    .preferring(
        *float_classification.FLOAT_CLASSIFICATION,
        comparisons.isclose,
        *signs.SIGNS,
        because="the C++ lowering is wrong at NaN, infinities or near zero",
    )
    .preferring(
        *division.division_rules(division.by_remainder, remainders=True),
        because="StableHLO's remainder has the sign of the dividend",
    )
    .preferring(*low_precision.HALF_ACCUMULATION, because="the C++ lowerings accumulate in low precision")
    .preferring(*low_precision.WIDE_FACTORS, because="the factor would be rounded to half precision")
    .preferring(
        *low_precision.in_float32(aten.cumsum.default, aten.cumprod.default, aten.gelu.default),
        because="the C++ lowerings compute it in low precision",
    )
    .preferring(cumulative.cumsum_in_narrow_integers, because="the C++ lowering ends the process for 8 bits")
    .preferring(*COMPLEX_OPERATORS, because="it has no C++ lowering of complex dtypes")
    .preferring(bools.add_bools, because="the C++ lowering adds bools in one bit")
    .preferring(*bools.BOOL_ACCUMULATION, because="the C++ lowerings accumulate bools in one bit, or not at all")
    .preferring(*bools.BOOL_EXTREMA, because="the C++ lowerings compare bools as signed integers, or not at all")
    .preferring(pooling.avg_pool2d_by_constants, because="the C++ lowering computes the sizes of windows in each call")
    .preferring(*pooling.EXPLICIT_STRIDES, because="a C++ pass reads past the end of an empty stride list")
    .preferring(low_precision.saturate_e4m3fn, because="its conversion to f8E4M3FN does not saturate")
    .preferring(clamp.clamp_beyond_the_dtype, because="bounds that the dtype does not have would wrap around")
    .replacing(bit_views.view_of_bits, because="the C++ lowerings support one width, or none")
    .preferring(
        *promotion.PROMOTIONS,
        because="the C++ lowerings compute operands of different dtypes in one of them, unpromoted",
    )
    .preferring(*smooth.BYTE_RESIZING, because="torch's rules compute in float32, and eager in fixed point")
    .preferring(*rank_zero.RANK_ZERO_INDICES, because="the C++ lowerings and our rules take an index per axis")
)
