"""Fourier transforms, and programs of them."""

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from .harness import Case, check, normal, table


def filtered(x: Tensor) -> Tensor:
    """Return ``x`` without its higher frequencies, and with its reflection."""
    spectrum = torch.fft.rfft2(x)
    kept = torch.cat([torch.view_as_real(spectrum)[:, :, :2], torch.zeros(x.shape[0], x.shape[1], 2, 2)], 2)
    return torch.fft.irfft2(torch.complex(kept[..., 0], kept[..., 1]), s=(x.shape[1], 6))


def spectrogram(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.stft(x, 8, hop_length=4, return_complex=True, window=torch.hann_window(8)))


def smoothed(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the circular convolution along axis 1 with a decay, and the spectrum along axes 0 and 1."""
    decay = 0.5 ** torch.arange(x.shape[1], dtype=x.dtype).unsqueeze(-1)
    product = torch.fft.rfft(x, dim=1) * torch.fft.rfft(decay, dim=0)
    return torch.fft.irfft(product, n=x.shape[1], dim=1), torch.view_as_real(
        torch.fft.fft2(x, dim=(0, 1), norm="ortho")
    )


class Rotation(nn.Module):
    """Rotary positions as complex numbers: a constant, sliced and multiplied."""

    turns: Tensor

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(7.0), 0.3 ** torch.arange(4))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[: x.shape[1]]).flatten(-2)


def arithmetic(x: Tensor) -> tuple[Tensor, ...]:
    a, b = torch.complex(x[:, :3], x[:, 3:]), torch.complex(x[0, :3], x[1, 3:])
    both = torch.where(x[:, :3] > 0, torch.stack([a, b.expand_as(a)])[1] * 2j, a / b)
    product = (both.exp() @ both.conj().T).sum(0) - 1.5
    return product.real, product.imag, product.abs(), torch.cat([a, both], 1).flip(1).imag


@pytest.mark.slow_rows(
    "^transform_of_a_batch_of_any_size-stablehlo$",
    "^transform_of_a_batch_of_any_size-tosa$",
    "^filter-tosa$",
    "^arithmetic-tosa$",
    "^spectrogram-tosa$",
    "^spectrogram-stablehlo$",
    "^lengths_of_any_size-tosa",
    "^lengths_of_any_size-stablehlo",
    "^filter-stablehlo",
)
@table(
    Case("rotation", lambda: (Rotation(), (normal(2, 5, 8),))),
    Case("filter", lambda: (filtered, (normal(2, 5, 6),))),
    Case("arithmetic", lambda: (arithmetic, (normal(2, 6),))),
    Case("spectrogram", lambda: (spectrogram, (normal(2, 40),))),
    Case(
        "transform_of_a_batch_of_any_size",
        lambda: (lambda x: torch.fft.ifft(x, dim=1), (normal(2, 72, dtype=torch.complex64),)),
        dynamic_shapes=({0: Dim.DYNAMIC},),
        others=lambda: [(normal(3, 72, dtype=torch.complex64),)],
    ),
    Case(
        "lengths_of_any_size",
        lambda: (smoothed, (normal(2, 6, 3),)),
        dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},),
        others=lambda: [(normal(4, 9, 3),), (normal(5, 66, 3),)],
        tolerance=(1e-4, 1e-5),
    ),
)
def test_fourier(case, output_type):
    check(case, output_type, tosa=True)
