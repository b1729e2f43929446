"""The base of every output type's table: torch's Core ATen decompositions, without harmful ones, and rules of ours."""

from __future__ import annotations

from torch._decomp import core_aten_decompositions

from fx_importer.decompositions.elementwise import arithmetic, comparisons, foreach, powers, prim_operators, shifts
from fx_importer.decompositions.engine.table import DecompositionTable, overloads_only
from fx_importer.decompositions.indexing import factories, index_put, masked, pad, reshape, strided_views
from fx_importer.decompositions.matmul import einsum, matmul, scaled_mm
from fx_importer.decompositions.nn import (
    adaptive_pooling,
    attention,
    convolutions,
    fractional_pooling,
    gpu_attention,
    losses,
    normalization,
)
from fx_importer.decompositions.random import distributions
from fx_importer.decompositions.reduction import any_all, norms, sum_mean_prod, variance
from fx_importer.decompositions.resize import grid_sample, nearest
from fx_importer.fx_graph.operators import aten

CORE_ATEN = DecompositionTable(
    overloads_only(core_aten_decompositions()), because="outside the Core ATen operator set; torch's own decomposition"
)
"""Torch's own decompositions to the Core ATen operator set."""

BASE = (
    CORE_ATEN.keeping(
        *(aten.fft_fft, aten.fft_fft2, aten.fft_fftn, aten.fft_ifft, aten.fft_ifft2, aten.fft_ifftn),
        *(aten.fft_rfft, aten.fft_rfft2, aten.fft_rfftn, aten.fft_irfft, aten.fft_irfft2, aten.fft_irfftn),
        *(aten.fft_hfft, aten.fft_hfft2, aten.fft_hfftn, aten.fft_ihfft, aten.fft_ihfft2, aten.fft_ihfftn),
        *(aten.stft, aten.istft),
        because="torch's decompositions end in _fft_r2c, _fft_c2c and _fft_c2r, which the torch dialect lacks",
    )
    .keeping(aten.fft_fftshift, aten.fft_ifftshift, because="torch's decompositions gather")
    .keeping(
        *(aten.norm, aten.linalg_norm, aten.linalg_vector_norm, aten.linalg_slogdet),
        because="torch's decompositions emit complex arithmetic that the C++ ones avoid",
    )
    .keeping(aten.one_hot, because="torch's decomposition scatters")
    .keeping(
        aten.squeeze.default,
        aten.squeeze.dim,
        because="torch's decompositions go through squeeze.dims, which has a rule of its own",
    )
    .keeping(aten.empty_like, because="torch's decomposition preserves strides, through empty_permuted")
    .keeping(
        *(aten.all, aten.isfinite, aten.logaddexp, aten.logaddexp2, aten.eye, aten.isclose),
        because="the C++ lowerings support it",
    )
    .from_torch(
        aten.upsample_bilinear2d.vec,
        *(aten.upsample_bilinear2d.default, aten.upsample_trilinear3d.default, aten.upsample_bicubic2d.default),
        aten.addmm.dtype,
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats,
        aten._adaptive_avg_pool2d.default,
        aten._log_softmax.default,
        because="a composite that Core ATen keeps, and that not every backend supports",
    )
    .replacing(
        *(matmul.linear, matmul.matmul, matmul.addmm, matmul.baddbmm, matmul.addbmm, matmul.addmv),
        because="torch's decompositions multiply by one, and repeat a weight for each batch",
    )
    .preferring(einsum.einsum, because="torch's decomposition adds a batch of one, and merges axes by transposes")
    .preferring(
        *(*adaptive_pooling.ADAPTIVE_OF_DYNAMIC_SHAPE, *nearest.NEAREST_OF_DYNAMIC_SHAPE),
        because="torch's decompositions specialize dynamic sizes to those of the example",
    )
    .preferring(*adaptive_pooling.WITHOUT_ELEMENTS, because="torch's decompositions and ours divide by the output size")
    .preferring(sum_mean_prod.mean_of_integers, because="the C++ lowering to linalg takes floats only")
    .preferring(
        sum_mean_prod.sum_as_bool, because="the C++ lowering to linalg adds in one bit, TOSA does not add bools"
    )
    .replacing(*norms.NORMS_IN_DTYPE, because="the C++ lowering to linalg lacks these overloads")
    .replacing(masked.masked_scatter, because="the C++ lowering supports static shapes only")
    .replacing(
        index_put.index_put_impl, sum_mean_prod.prod_over_axes, because="the torch dialect or every backend lacks it"
    )
    .replacing(*fractional_pooling.FRACTIONAL_POOLING, because="the torch dialect lacks it")
    .replacing(*distributions.OTHER_DISTRIBUTIONS, because="the torch dialect or every backend lacks it")
    .replacing(
        *any_all.ANY_ALL, because="the torch dialect lacks all.dims and _is_all_true; any.dims of None or uint8 fails"
    )
    .replacing(matmul.grouped_mm, because="the torch dialect lacks it")
    .replacing(
        grid_sample.grid_sampler, because="torch's decomposition computes positions and weights for each channel"
    )
    .replacing(
        attention.scaled_dot_product_attention, because="torch's decomposition permutes the layout back and forth"
    )
    .replacing(
        attention.flash_attention_for_cpu,
        because="torch's decomposition returns the attention weights as the second result",
    )
    .replacing(*gpu_attention.GPU_ATTENTION, because="programs of a GPU record these kernels")
    .replacing(
        attention.transformer_encoder_layer,
        because="torch.compile records this kernel for layers in evaluation, and the torch dialect lacks it",
    )
    .replacing(
        *(normalization.layer_norm, normalization.native_layer_norm, normalization.rms_norm),
        *(normalization.group_norm, normalization.native_group_norm, normalization.batch_norm_inference),
        *(variance.var, variance.var_mean, variance.std, variance.std_mean),
        because="torch's decompositions end in as_strided and prims, and the C++ ones compute in float64",
    )
    .replacing(reshape.repeat_of_any_size, because="the C++ lowerings divide by zero, or give other sizes")
    .preferring(factories.linspace_without_device, because="torch's decomposition fails without a device")
    .preferring(pad.pad_circular, because="torch's decomposition writes into an empty tensor")
    .preferring(
        pad.pad_sequence_of_dynamic_lengths, because="torch's decomposition takes the longest sequence from the example"
    )
    .replacing(reshape.split_with_sizes, because="every backend supports static sizes only")
    .replacing(reshape.squeeze, because="torch's decomposition ends in prims.squeeze")
    .replacing(
        *(
            strided_views.diagonal_scatter,
            reshape.resize,
            normalization.batch_norm_with_update,
            norms.powsum,
        ),
        *(factories.empty_permuted, factories.efficient_zero_tensor),
        *losses.LOSSES,
        because="the torch dialect lacks it",
    )
    .replacing(losses.multilabel_margin_loss, because="torch's decomposition counts padding as labels")
    .replacing(matmul.trilinear, because="the C++ decomposition asserts that sizes agree, and sums 8-bit integers")
    .replacing(convolutions.conv_tbc, because="the torch dialect infers a wrong shape of its result")
    .replacing(reshape.roll, arithmetic.cross, because="torch's decompositions gather")
    .replacing(*reshape.COPIES, because="the torch dialect or every backend lacks it")
    .replacing(*prim_operators.PRIMS, because="the torch dialect lacks it, or nothing lowers it")
    .replacing(*scaled_mm.LOW_PRECISION_PRODUCTS, because="the C++ lowerings support int8 by int8, and no fp8")
    .replacing(*foreach.FOREACH, because="the torch dialect has no lists of tensors in operators")
    .replacing(*shifts.SHIFTS, *shifts.BITWISE_SCALARS, because="no backend supports all of its spellings")
    .replacing(
        *comparisons.SAME_KIND_COMPARISONS,
        because="the C++ fold of a constant tensor reads an integer as a float's bits, crashes on a float that "
        "integers are compared with, and reads true as -1",
    )
    .preferring(
        *arithmetic.FLOAT_SCALAR_ARITHMETIC,
        because="the C++ fold of a constant tensor reads a negative integer as unsigned",
    )
    .replacing(arithmetic.trunc, because="the torch dialect folds it with the wrong sign")
    .replacing(powers.power, because="a product is cheaper than a power, and has no scalar constant")
)
