"""Fourier transforms, and what is made of them, in the output types that have complex numbers."""

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from fx_importer import UnsupportedProgramError

from .harness import TOSA, Case, check, normal, table


def filtered(x: Tensor) -> Tensor:
    """Return ``x`` without its higher frequencies, and with a mirror image."""
    spectrum = torch.fft.rfft2(x)
    kept = torch.cat([torch.view_as_real(spectrum)[:, :, :2], torch.zeros(x.shape[0], x.shape[1], 2, 2)], 2)
    return torch.fft.irfft2(torch.complex(kept[..., 0], kept[..., 1]), s=(x.shape[1], 6))


def spectrogram(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.stft(x, 8, hop_length=4, return_complex=True, window=torch.hann_window(8)))


@table(
    Case("filter", lambda: (filtered, (normal(2, 5, 6),))),
    Case("spectrogram", lambda: (spectrogram, (normal(2, 40),))),
    Case(
        "transform_of_a_batch_of_any_size",
        lambda: (lambda x: torch.fft.ifft(x, dim=1), (normal(2, 72, dtype=torch.complex64),)),
        dynamic_shapes=({0: Dim.DYNAMIC},),
        others=lambda: [(normal(3, 72, dtype=torch.complex64),)],
    ),
)
def test_fourier(case, output_type):
    if output_type is TOSA:
        with pytest.raises(UnsupportedProgramError, match="torch.complex64, which TOSA does not have"):
            check(case, output_type)
    else:
        check(case, output_type)
