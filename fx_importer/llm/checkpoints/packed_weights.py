"""8-bit and 4-bit weights of language models, dequantized where they are used.

For few tokens, a layer multiplies elementwise and sums. Compilers fuse this with the dequantization, so the weight is
read packed and the unpacked weight is never stored. For many tokens, such as a prompt, it dequantizes the weight in
pieces and calls a matmul.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from fx_importer.errors import UsageError

GROUP = 32
"""The number of weights that share a scale in the int4 format."""
_FEW = 8
"""The most tokens for which a layer uses the fused form, which reads the weight packed."""
_PIECE = 1 << 26
"""The number of weights that are dequantized at once."""


class PackedLinear(torch.nn.Module, ABC):
    """A linear layer, [..., K] → [..., N], with a packed weight. The sum over K runs in float32.

    Args:
        rows: N.
        bias: [N], or None.
    """

    def __init__(self, rows: int, bias: Tensor | None):
        super().__init__()
        self.bias = None if bias is None else frozen(bias)
        self._rows = rows

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``, in the dtype of ``x``."""
        rows = math.prod(x.shape[:-1])  # torch.Size.numel makes a dynamic length static
        wide = x.float()
        result = self._fused(wide) if isinstance(rows, int) and rows <= _FEW else self._in_pieces(wide)
        return (result if self.bias is None else result + self.bias).to(x.dtype)

    def _in_pieces(self, x: Tensor) -> Tensor:
        size = max(32, _PIECE // x.shape[-1] // 32 * 32)
        pieces = [self._unpacked(x, slice(first, first + size)) for first in range(0, self._rows, size)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)

    @abstractmethod
    def _fused(self, x: Tensor) -> Tensor:
        """Return the product in the fused form, which reads the packed weight."""

    @abstractmethod
    def _unpacked(self, x: Tensor, rows: slice) -> Tensor:
        """Dequantize ``rows`` of the weight, and return the product with them."""


class ScaledLinear(PackedLinear):
    """A linear layer whose weight has its scales in a separate tensor.

    Args:
        weight: the packed weight, [N, K] or [N, K / 2].
        scale: the scales of groups of weights, [N] or [N, K / GROUP].
        bias: [N], or None.
        lanes: accumulate in this many parallel lanes, reduced to a divisor of half a row, with the halves of a row
            added pairwise; 1 for a single sum.
    """

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None, lanes: int):
        super().__init__(weight.shape[0], bias)
        self.weight, self.scale = frozen(weight), frozen(scale)
        self._lanes = lanes


class Int8Linear(ScaledLinear):
    """A linear layer with an int8 weight, [N, K], and a scale per row, float32 [N]."""

    def _fused(self, x: Tensor) -> Tensor:
        lanes = math.gcd(self._lanes, x.shape[-1] // 2) if x.shape[-1] % 2 == 0 else 1
        if lanes == 1:
            return (x.unsqueeze(-2) * self.weight.float()).sum(-1) * self.scale
        first, second = x.unflatten(-1, (2, 1, -1, lanes)).unbind(-4)
        low, high = self.weight.unflatten(-1, (2, -1, lanes)).unbind(1)
        return (first * low.float() + second * high.float()).sum(-2).sum(-1) * self.scale

    def _unpacked(self, x: Tensor, rows: slice) -> Tensor:
        return torch.nn.functional.linear(x, self.weight[rows].float()) * self.scale[rows]


class Int4Linear(ScaledLinear):
    """A linear layer with a 4-bit weight, uint8 [N, K / 2], and a scale per group, float16 [N, K / GROUP].

    In each row, the low 4 bits of the bytes hold the first half of the weights, and the high 4 bits the second half,
    all with an offset of 8.
    """

    def _fused(self, x: Tensor) -> Tensor:
        low, high = self._halves(self.weight, self.scale)
        first, second = x.unflatten(-1, (2, 1, -1, GROUP)).unbind(-4)
        return (first * low + second * high).sum(-2).sum(-1)  # GROUP lanes, which compilers vectorize

    def _unpacked(self, x: Tensor, rows: slice) -> Tensor:
        low, high = (half.flatten(1) for half in self._halves(self.weight[rows], self.scale[rows]))
        first, second = x.unflatten(-1, (2, -1)).unbind(-2)
        return torch.nn.functional.linear(first, low) + torch.nn.functional.linear(second, high)

    def _halves(self, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Return the dequantized halves of all rows, float32 [N, K / 2 / GROUP, GROUP]."""
        bytes_ = weight.unflatten(1, (-1, GROUP))
        first, second = scale.float().unsqueeze(-1).chunk(2, 1)
        return ((bytes_ & 15).float() - 8) * first, ((bytes_ >> 4).float() - 8) * second


class Int8Embedding(torch.nn.Module):
    """An int8 embedding table, [V, K], with a scale per row, float32 [V]. ``factor`` multiplies the rows."""

    def __init__(self, weight: Tensor, scale: Tensor, dtype: torch.dtype, factor: Tensor | float | None):
        super().__init__()
        self.weight, self.scale = frozen(weight), frozen(scale)
        self._dtype, self._factor = dtype, None if factor is None else float(factor)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embeddings, [..., K], of ``tokens`` [...]."""
        rows = torch.nn.functional.embedding(tokens, self.weight)
        scale = torch.nn.functional.embedding(tokens, self.scale.unsqueeze(1))
        rows_ = (rows.float() * scale).to(self._dtype)
        return rows_ if self._factor is None else rows_ * self._factor


def frozen(values: Tensor) -> torch.nn.Parameter:
    """Return a frozen parameter. It is not a buffer, since transformers reads device and dtype from parameters."""
    if isinstance(values, torch.nn.Parameter):  # several layers may share it
        return values
    return torch.nn.Parameter(values, requires_grad=False)


def pack_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize ``weight`` [N, K] symmetrically to int8, -127 to 127. Also return the scale of each row, float32 [N]."""
    wide = weight.float()
    scale = wide.abs().amax(1) / 127
    return _divided(wide, scale.unsqueeze(1)).clamp_(-127, 127).to(torch.int8), scale


def pack_int4(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize ``weight`` [N, K] to 4 bits for `Int4Linear`, and return it with the scales.

    K must be a multiple of 2 * `GROUP`. The value of the largest magnitude in a group maps to -8, so that all 16 codes
    can occur.
    """
    groups = weight.float().unflatten(1, (-1, GROUP))
    largest = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    scale = (largest / -8).to(torch.float16)
    values = (_divided(groups, scale.float()) + 8).clamp_(0, 15).to(torch.uint8)
    low, high = values.flatten(1).chunk(2, 1)
    return low | high << 4, scale.squeeze(2)


def _divided(values: Tensor, scale: Tensor) -> Tensor:
    return torch.where(scale == 0, 0.0, values / scale).round_()


def check_finite(scale: Tensor, name: str) -> None:
    """Raise `UsageError` if a scale of the weight ``name`` is infinite or NaN, because the weight has such values."""
    if not bool(scale.isfinite().all()):
        raise UsageError(
            f"the weight '{name}' has values that are infinite, NaN, or too large for a scale of {scale.dtype}: it "
            "cannot be quantized"
        )


PACKINGS: dict[str, tuple[Any, Any]] = {"int8": (pack_int8, Int8Linear), "int4": (pack_int4, Int4Linear)}
"""The packing function and the layer class of each format, keyed by its name."""


def check_format(name: str | None) -> None:
    """Raise `UsageError` unless ``name`` is a weight format or None."""
    if name is not None and name not in PACKINGS:
        raise UsageError(f"weights in {name!r}: accepted are {', '.join(PACKINGS)}")
