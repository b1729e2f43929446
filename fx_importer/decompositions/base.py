"""What every output type starts from: torch's core ATen decompositions, less what the torch dialect takes whole."""

from __future__ import annotations

import torch
from torch._decomp import core_aten_decompositions

from fx_importer.decompositions.table import DecompositionTable

aten = torch.ops.aten

CORE_ATEN = DecompositionTable(dict(core_aten_decompositions().items()))
"""Torch's own table to the Core ATen operator set."""

BASE = CORE_ATEN.keeping(
    # Torch's rules end in _fft_r2c, _fft_c2c and _fft_c2r, which the dialect lacks.
    *(aten.fft_fft, aten.fft_fft2, aten.fft_fftn, aten.fft_ifft, aten.fft_ifft2, aten.fft_ifftn),
    *(aten.fft_rfft, aten.fft_rfft2, aten.fft_rfftn, aten.fft_irfft, aten.fft_irfft2, aten.fft_irfftn),
    *(aten.fft_hfft, aten.fft_hfft2, aten.fft_hfftn, aten.fft_ihfft, aten.fft_ihfft2, aten.fft_ihfftn),
    *(aten.stft, aten.istft),
    # Torch's rules index with the remainders of an arange; StableHLO has no gather for that here.
    *(aten.fft_fftshift, aten.fft_ifftshift, aten.roll),
    # Torch's rules leave the complex numbers that the C++ ones keep clear of.
    *(aten.norm, aten.linalg_norm, aten.linalg_vector_norm, aten.linalg_slogdet),
    aten.one_hot,  # torch's rule scatters
    aten.empty_like,  # torch's rule keeps strides, by empty_permuted
    *(aten.rms_norm, aten.all, aten.isfinite, aten.logaddexp, aten.logaddexp2, aten.eye, aten.isclose),
).from_torch(
    # Composites that stay whole in core ATen, and that not every backend takes.
    aten.native_group_norm.default,
    aten.native_layer_norm.default,
    aten.upsample_bilinear2d.vec,
    aten.addmm.default,
    aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit_no_training.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten.squeeze.dims,
    aten.grid_sampler_2d.default,
    aten._adaptive_avg_pool2d.default,
    aten.full.default,
    aten._log_softmax.default,
    aten._to_copy.default,
)
