"""Rules of discrete Fourier transforms, as products with matrices of cosines and sines.

A transform of length up to `_MAX_DIRECT_LENGTH`, or of prime or dynamic length, is one matrix product; other lengths
are split in two factors (Cooley and Tukey, 1965). Angles are computed in float64, from integers reduced to one turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.decompositions.tables.base import CORE_ATEN
from fx_importer.fx_graph.operators import aten

_MAX_DIRECT_LENGTH = 64
"""Largest length that is one product: splitting it is no faster, and its matrix has 32 KiB in float64."""

Parts = tuple[Tensor, Tensor | None]
"""The real and the imaginary part; None is zero."""


def _operand(size: int, dtype: torch.dtype) -> Any:
    """Return a size for arithmetic with tensors: a dynamic one as a tensor of rank 0."""
    return size if isinstance(size, int) else torch.scalar_tensor(size, dtype=dtype)


def _twiddle_factors(rows: int, columns: int, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosine and the sine of ``2 pi j k / length``, each ``rows`` × ``columns``."""
    j = torch.arange(rows, device=like.device).unsqueeze(-1)
    turns = (j * torch.arange(columns, device=like.device)) % _operand(length, torch.int64)
    angles = turns.to(torch.float64) * (2 * math.pi / _operand(length, torch.float64))
    return torch.cos(angles).to(like.dtype), torch.sin(angles).to(like.dtype)


def _multiply(x: Parts, cosine: Tensor, sine: Tensor, product: Any) -> tuple[Tensor, Tensor]:
    real, imaginary = x
    if imaginary is None:
        return product(real, cosine), product(real, sine)
    return (
        product(real, cosine) - product(imaginary, sine),
        product(real, sine) + product(imaginary, cosine),
    )


def _factor(length: int) -> int:
    """Return the largest divisor of ``length`` that is at most its square root."""
    return next(factor for factor in range(math.isqrt(length), 0, -1) if length % factor == 0)


def _is_direct(length: int) -> bool:
    """Return whether a transform is one product: a dynamic length cannot be split."""
    return not isinstance(length, int) or length <= _MAX_DIRECT_LENGTH or _factor(length) == 1


def _dft_last_axis(x: Parts, sign: int, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the sums over the last axis of ``x[n] * exp(sign * 2 pi i n k / length)``, for each ``k < count``."""
    real, imaginary = x
    *batch, length = real.shape
    if _is_direct(length):
        cosine, sine = _twiddle_factors(length, length if count is None else count, length, real)
        return _multiply(x, cosine, sign * sine, torch.matmul)
    first = _factor(length)
    second = length // first
    # n = second * n1 + n2 and k = k1 + first * k2: sum over n1, multiply by twiddle factors of n2 * k1, sum over n2.
    split = [None if part is None else part.reshape(*batch, first, second).transpose(-1, -2) for part in x]
    assert split[0] is not None
    inner = _dft_last_axis((split[0], split[1]), sign)
    cosine, sine = _twiddle_factors(second, first, length, real)
    turned = _multiply(inner, cosine, sign * sine, torch.mul)
    outer = _dft_last_axis((turned[0].transpose(-1, -2), turned[1].transpose(-1, -2)), sign)
    real, imaginary = (part.transpose(-1, -2).reshape(*batch, length) for part in outer)
    return (real, imaginary) if count is None else (real[..., :count], imaginary[..., :count])


def _dft_along(x: Parts, dim: int, sign: int, count: int | None = None) -> tuple[Tensor, Tensor]:
    real, imaginary = x
    moved = real.movedim(dim, -1), None if imaginary is None else imaginary.movedim(dim, -1)
    real, imaginary = _dft_last_axis(moved, sign, count)
    return real.movedim(-1, dim), imaginary.movedim(-1, dim)


def _normalized(x: Tensor, normalization: int, count: int) -> Tensor:
    """Return ``x``, ``x / sqrt(count)`` or ``x / count``, for a ``normalization`` of 0, 1 and 2."""
    if not normalization:
        return x
    if isinstance(count, int):
        return x * (1 / (math.sqrt(count) if normalization == 1 else count))
    number = torch.scalar_tensor(count, dtype=x.dtype)
    return x / (torch.sqrt(number) if normalization == 1 else number)


def _transform_size(shape: Sequence[int], dim: Sequence[int]) -> int:
    return math.prod(shape[axis] for axis in dim)


def _is_empty(x: Tensor, dim: Sequence[int]) -> bool:
    return 0 in [x.shape[axis] for axis in dim if isinstance(x.shape[axis], int)]


@decomposes(aten._fft_c2c.default)
def fft_c2c(x: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    """Return the transform along each axis of ``dim``."""
    if _is_empty(x, dim):
        return NotImplemented
    pairs = torch.view_as_real(x)
    parts = pairs.select(-1, 0), pairs.select(-1, 1)
    for axis in dim:
        parts = _dft_along(parts, axis % x.dim(), -1 if forward else 1)
    return torch.complex(*(_normalized(part, normalization, _transform_size(x.shape, dim)) for part in parts))


@decomposes(aten._fft_r2c.default)
def fft_r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    """Return the transform along each axis of ``dim``.

    If ``onesided``, the last axis has the half that the other half is the conjugate of.
    """
    if _is_empty(x, dim):
        return NotImplemented
    parts: Parts = (x, None)
    for axis in reversed(list(dim)):
        half = x.shape[axis] // 2 + 1 if onesided and parts[1] is None else None
        parts = _dft_along(parts, axis % x.dim(), -1, half)
    assert parts[1] is not None
    return torch.complex(
        *(_normalized(part, normalization, _transform_size(x.shape, dim)) for part in parts if part is not None)
    )


@decomposes(aten._fft_c2r.default)
def fft_c2r(x: Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    """Return the real inverse transform of a spectrum whose last axis has one half.

    The other half is the conjugate of its mirror image.
    """
    if _is_empty(x, dim):
        return NotImplemented
    pairs = torch.view_as_real(x)
    parts = pairs.select(-1, 0), pairs.select(-1, 1)
    *others, last = (axis % x.dim() for axis in dim)
    for axis in others:
        parts = _dft_along(parts, axis, 1)
    half = last_dim_size // 2 + 1
    real, imaginary = (part.narrow(last, 0, half) for part in parts)
    # Elements without a mirror image are real: their imaginary part is ignored.
    alone = torch.arange(half, device=x.device)
    alone = (alone * 2) % _operand(last_dim_size, torch.int64) == 0
    alone = alone.reshape([half if axis == last else 1 for axis in range(x.dim())])
    imaginary = torch.where(alone, 0.0, imaginary)
    if _is_direct(last_dim_size):  # both halves add the same real part
        weights = torch.where(alone, 1.0, 2.0).to(real.dtype)
        cosine, sine = _twiddle_factors(half, last_dim_size, last_dim_size, real)
        moved = (weights * real).movedim(last, -1), (weights * imaginary).movedim(last, -1)
        result = (moved[0] @ cosine - moved[1] @ sine).movedim(-1, last)
    else:
        mirrored = (last_dim_size - 1) // 2
        real = torch.cat([real, real.narrow(last, 1, mirrored).flip(last)], last)
        imaginary = torch.cat([imaginary, -imaginary.narrow(last, 1, mirrored).flip(last)], last)
        result, _ = _dft_along((real, imaginary), last, 1)
    return _normalized(result, normalization, _transform_size(x.shape, others) * last_dim_size)


def _torch_rules() -> tuple[Decomposition, ...]:
    """Return torch's rules of the composite transforms, which end in the three operators above."""
    names = [f"{kind}fft{axes}" for kind in ("", "i", "r", "ir", "h", "ih") for axes in ("", "2", "n")]
    packets = [*(getattr(aten, f"fft_{name}") for name in names), aten.stft, aten.istft]
    overloads = [getattr(packet, name) for packet in packets for name in packet.overloads()]
    return tuple(Decomposition((overload,), CORE_ATEN[overload]) for overload in overloads if overload in CORE_ATEN)


@decomposes(aten.fft_fftshift.default)
def fftshift(x: Tensor, dim: Sequence[int] | None = None) -> Tensor:
    """Roll each axis by half its length."""
    axes = list(range(x.dim())) if dim is None else list(dim)
    return torch.roll(x, [x.shape[axis] // 2 for axis in axes], axes)


@decomposes(aten.fft_ifftshift.default)
def ifftshift(x: Tensor, dim: Sequence[int] | None = None) -> Tensor:
    """Roll each axis by half its length rounded up, the inverse of `fftshift`."""
    axes = list(range(x.dim())) if dim is None else list(dim)
    return torch.roll(x, [(x.shape[axis] + 1) // 2 for axis in axes], axes)


@decomposes(aten.fft_fftfreq.default)
def fftfreq(n: int, d: float = 1.0, dtype: torch.dtype | None = None, **keywords: Any) -> Tensor:
    """Return the frequencies of a transform's bins, the negative ones behind the others."""
    index = torch.arange(n, dtype=dtype or torch.get_default_dtype(), device=keywords.get("device"))
    return torch.where(index < (n + 1) // 2, index, index - n) * (1.0 / (n * d))


@decomposes(aten.fft_rfftfreq.default)
def rfftfreq(n: int, d: float = 1.0, dtype: torch.dtype | None = None, **keywords: Any) -> Tensor:
    """Return the frequencies of the bins of a real transform."""
    index = torch.arange(n // 2 + 1, dtype=dtype or torch.get_default_dtype(), device=keywords.get("device"))
    return index * (1.0 / (n * d))


FOURIER = (fft_c2c, fft_r2c, fft_c2r, fftshift, ifftshift, fftfreq, rfftfreq, *_torch_rules())
"""Rules of the three operators that transforms end in, of shifts and frequencies, and torch's rules of the others."""
