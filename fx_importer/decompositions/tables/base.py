"""What every output type starts from: torch's core ATen decompositions, less those that do harm, and rules of ours."""

from __future__ import annotations

from torch._decomp import core_aten_decompositions

from fx_importer.decompositions.elementwise import arithmetic, comparisons, powers, rounding, shifts
from fx_importer.decompositions.engine.table import DecompositionTable, overloads_only
from fx_importer.decompositions.indexing import copies, factories, masked, reshape, roll, strided_views
from fx_importer.decompositions.matmul import grouped_mm, matmul
from fx_importer.decompositions.nn import adaptive_pooling, attention, losses, normalization
from fx_importer.decompositions.reduction import variance
from fx_importer.decompositions.resize import grid_sample, nearest
from fx_importer.fx_graph.operators import aten

CORE_ATEN = DecompositionTable(
    overloads_only(core_aten_decompositions()), because="not of the Core ATen operator set; the rule is torch's own"
)
"""Torch's own table to the Core ATen operator set."""

BASE = (
    CORE_ATEN.keeping(
        *(aten.fft_fft, aten.fft_fft2, aten.fft_fftn, aten.fft_ifft, aten.fft_ifft2, aten.fft_ifftn),
        *(aten.fft_rfft, aten.fft_rfft2, aten.fft_rfftn, aten.fft_irfft, aten.fft_irfft2, aten.fft_irfftn),
        *(aten.fft_hfft, aten.fft_hfft2, aten.fft_hfftn, aten.fft_ihfft, aten.fft_ihfft2, aten.fft_ihfftn),
        *(aten.stft, aten.istft),
        because="torch's rules end in _fft_r2c, _fft_c2c and _fft_c2r, which the dialect lacks",
    )
    .keeping(aten.fft_fftshift, aten.fft_ifftshift, because="torch's rules gather")
    .keeping(
        *(aten.norm, aten.linalg_norm, aten.linalg_vector_norm, aten.linalg_slogdet),
        because="torch's rules leave complex numbers that the C++ ones keep clear of",
    )
    .keeping(aten.one_hot, because="torch's rule scatters")
    .keeping(aten.squeeze.default, aten.squeeze.dim, because="torch's rules go through squeeze.dims, which has its own")
    .keeping(aten.empty_like, because="torch's rule keeps strides, by empty_permuted")
    .keeping(
        *(aten.all, aten.isfinite, aten.logaddexp, aten.logaddexp2, aten.eye, aten.isclose),
        because="the C++ lowerings take it whole",
    )
    .from_torch(
        aten.upsample_bilinear2d.vec,
        *(aten.upsample_bilinear2d.default, aten.upsample_trilinear3d.default, aten.upsample_bicubic2d.default),
        aten.addmm.dtype,
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats,
        aten.grid_sampler_2d.default,
        aten._adaptive_avg_pool2d.default,
        aten._log_softmax.default,
        because="a composite that stays whole in Core ATen, and that not every backend takes",
    )
    .replacing(
        *(matmul.linear, matmul.matmul, matmul.addmm, matmul.baddbmm, matmul.addbmm, matmul.addmv),
        because="torch's rules multiply by one, and repeat a weight for each batch",
    )
    .preferring(
        *(*adaptive_pooling.ADAPTIVE_OF_DYNAMIC_SHAPE, *nearest.NEAREST_OF_DYNAMIC_SHAPE, grid_sample.grid_sampler_2d),
        because="torch's rules are right for the sizes of the example only",
    )
    .replacing(masked.masked_scatter, because="the C++ lowering knows sizes that are known only")
    .replacing(grouped_mm.grouped_mm, because="the dialect lacks it")
    .replacing(attention.scaled_dot_product_attention, because="torch's rule changes the layout back and forth")
    .replacing(attention.flash_attention_for_cpu, because="torch's rule returns the weights as the second result")
    .replacing(
        *(normalization.layer_norm, normalization.native_layer_norm, normalization.rms_norm),
        *(normalization.group_norm, normalization.native_group_norm, normalization.batch_norm_inference),
        *(variance.var, variance.var_mean, variance.std, variance.std_mean),
        because="torch's rules end in as_strided and prims, and the C++ ones compute in float64",
    )
    .replacing(reshape.squeeze, because="torch's rule ends in prims.squeeze")
    .replacing(
        *(
            strided_views.diagonal_scatter,
            grid_sample.grid_sampler_3d,
            reshape.resize,
            normalization.batch_norm_with_update,
        ),
        *(factories.empty_permuted, factories.efficient_zero_tensor),
        *losses.LOSSES,
        because="the dialect lacks it",
    )
    .replacing(roll.roll, because="torch's rule gathers")
    .replacing(*copies.COPIES, because="the dialect lacks it, or no backend takes it")
    .replacing(*shifts.SHIFTS, because="no backend takes it under all of its names")
    .replacing(
        *comparisons.SAME_KIND_COMPARISONS,
        because="the C++ fold of a constant tensor reads a whole number as a float's bits, ends the process for a "
        "float that integers are compared with, and takes true for -1",
    )
    .preferring(
        *arithmetic.FLOAT_SCALAR_ARITHMETIC,
        because="the C++ fold of a constant tensor reads a negative whole number as one without a sign",
    )
    .replacing(rounding.trunc, because="the dialect folds it with the wrong sign")
    .replacing(powers.power, because="a product is cheaper than a power, and has no number to carry")
)
