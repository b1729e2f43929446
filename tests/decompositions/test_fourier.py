"""Fourier transforms against eager: lengths that are one product, primes, and lengths that are split."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fx_importer.decompositions.fft import fourier

aten = torch.ops.aten
LENGTHS = (1, 2, 3, 8, 63, 64, 65, 67, 96, 128, 1000)


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def numbers(*shape: int) -> Tensor:
    return normal(*shape, dtype=torch.complex128)


@pytest.mark.parametrize("normalization", [0, 1, 2])
@pytest.mark.parametrize("length", LENGTHS)
def test_along_one_axis(length: int, normalization: int) -> None:
    x, c, half = normal(2, length), numbers(2, length), numbers(2, length // 2 + 1)
    for flag in (False, True):
        given = ([1], normalization, flag)
        assert_close(fourier.fft_c2c(c, *given), aten._fft_c2c(c, *given))
        assert_close(fourier.fft_r2c(x, *given), aten._fft_r2c(x, *given))
    back = ([1], normalization, length)
    assert_close(fourier.fft_c2r(half, *back), aten._fft_c2r(half, *back))


@pytest.mark.parametrize("dim", [[0], [2, 0], [0, 1, 2], [2, 1]])
def test_along_several_axes(dim: list[int]) -> None:
    x, c = normal(4, 6, 5), numbers(4, 6, 5)
    assert_close(fourier.fft_c2c(c, dim, 2, False), aten._fft_c2c(c, dim, 2, False))
    for onesided in (False, True):
        assert_close(fourier.fft_r2c(x, dim, 0, onesided), aten._fft_r2c(x, dim, 0, onesided))
    half = c.shape[dim[-1]]
    for length in (2 * half - 2, 2 * half - 1):
        assert_close(fourier.fft_c2r(c, dim, 1, length), aten._fft_c2r(c, dim, 1, length))


@pytest.mark.parametrize("length", [64, 1000, 4096])
def test_errors_in_float32_are_a_few_units(length: int) -> None:
    x = normal(3, length, dtype=torch.complex64)
    wanted = torch.fft.fft(x.to(torch.complex128))
    errors = fourier.fft_c2c(x, [1], 0, True) - wanted
    assert errors.abs().max() < 4 * torch.finfo(torch.float32).eps * wanted.abs().max()


@pytest.mark.parametrize("dim", [None, [0], [0, -1]])
def test_shifts(dim: list[int] | None) -> None:
    x = normal(4, 5)
    assert_close(fourier.fftshift(x, dim), torch.fft.fftshift(x, dim))
    assert_close(fourier.ifftshift(x, dim), torch.fft.ifftshift(x, dim))


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_frequencies(length: int) -> None:
    for spacing, dtype in ((1.0, torch.float32), (0.3, torch.float32), (2.0, torch.float64)):
        assert_close(fourier.fftfreq(length, spacing, dtype), torch.fft.fftfreq(length, spacing, dtype=dtype))
        assert_close(fourier.rfftfreq(length, spacing, dtype), torch.fft.rfftfreq(length, spacing, dtype=dtype))


def test_empty_axes_do_not_match() -> None:
    assert fourier.fft_c2c(numbers(2, 0), [1], 0, True) is NotImplemented
