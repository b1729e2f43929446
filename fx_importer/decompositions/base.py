"""What every output type starts from: torch's core ATen decompositions, less those that do harm, and rules of ours."""

from __future__ import annotations

import torch
from torch._decomp import core_aten_decompositions

from fx_importer.decompositions import (
    attention,
    copies,
    edges,
    normalization,
    powers,
    products,
    scalars,
    shapes,
    variance,
    windows,
)
from fx_importer.decompositions.table import DecompositionTable, overloads_only

aten = torch.ops.aten

CORE_ATEN = DecompositionTable(overloads_only(core_aten_decompositions()))
"""Torch's own table to the Core ATen operator set."""

BASE = (
    CORE_ATEN.keeping(
        # Torch's rules end in _fft_r2c, _fft_c2c and _fft_c2r, which the dialect lacks.
        *(aten.fft_fft, aten.fft_fft2, aten.fft_fftn, aten.fft_ifft, aten.fft_ifft2, aten.fft_ifftn),
        *(aten.fft_rfft, aten.fft_rfft2, aten.fft_rfftn, aten.fft_irfft, aten.fft_irfft2, aten.fft_irfftn),
        *(aten.fft_hfft, aten.fft_hfft2, aten.fft_hfftn, aten.fft_ihfft, aten.fft_ihfft2, aten.fft_ihfftn),
        *(aten.stft, aten.istft),
        *(aten.fft_fftshift, aten.fft_ifftshift),
        # Torch's rules leave complex numbers that the C++ ones keep clear of.
        *(aten.norm, aten.linalg_norm, aten.linalg_vector_norm, aten.linalg_slogdet),
        aten.one_hot,  # torch's rule scatters
        *(aten.squeeze.default, aten.squeeze.dim),  # torch's rules go through squeeze.dims, which has a rule below
        aten.empty_like,  # torch's rule keeps strides, by empty_permuted
        *(aten.all, aten.isfinite, aten.logaddexp, aten.logaddexp2, aten.eye, aten.isclose),
    )
    .from_torch(
        # Composites that stay whole in core ATen, and that not every backend takes.
        aten.upsample_bilinear2d.vec,
        aten.addmm.dtype,
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats,
        aten.grid_sampler_2d.default,
        aten._adaptive_avg_pool2d.default,
        aten._log_softmax.default,
    )
    .replacing(
        # Torch's rules multiply by one, and repeat a weight for each batch.
        *(products.linear, products.matmul, products.addmm, products.baddbmm, products.addbmm, products.addmv),
        attention.scaled_dot_product_attention,  # torch's rule changes the layout back and forth
        # Torch's rules end in as_strided and prims, and the C++ ones compute in float64.
        *(normalization.layer_norm, normalization.native_layer_norm, normalization.rms_norm),
        *(normalization.group_norm, normalization.native_group_norm, normalization.batch_norm_inference),
        *(variance.var, variance.var_mean, variance.std, variance.std_mean),
        shapes.squeeze,  # torch's rule ends in prims.squeeze
        windows.diagonal_scatter,  # the dialect lacks it
        shapes.roll,  # torch's rule gathers
        *copies.COPIES,  # the dialect lacks them, or no backend takes them
        *scalars.SHIFTS,  # no backend takes them under all of their names
        *scalars.COMPARISONS_OF_FLOATS,  # the C++ folds of a constant tensor read a whole number as a float's bits
        edges.trunc,  # see there
        powers.power,  # a product is cheaper than a power, and has no number to carry
    )
)
