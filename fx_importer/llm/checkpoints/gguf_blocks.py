"""Weights in GGUF blocks, dequantized where they are used.

Each row of a weight is a sequence of blocks. A block holds a few bytes of scales, then the quantized weights. The
layouts follow llama.cpp (ggml-quants.c). Dequantized weights are bit-identical to ``gguf.dequantize``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fx_importer.llm.checkpoints.packed_weights import PackedLinear, frozen


def _half(blocks: Tensor, at: int) -> Tensor:
    """Return the float16 at byte ``at`` of each block, [..., bytes], as float32 [...]."""
    low, high = blocks[..., at].to(torch.int16), blocks[..., at + 1].to(torch.int16)
    return (low | (high << 8)).view(torch.float16).float()


def _signed(values: Tensor) -> Tensor:
    """Reinterpret bytes as int8, and return them as float32."""
    return values.view(torch.int8).float()


def _low(values: Tensor) -> Tensor:
    return (values & 15).float()


def _high(values: Tensor) -> Tensor:
    return (values >> 4).float()


def _over(scale: Tensor, dimensions: int) -> Tensor:
    """Return ``scale`` with ``dimensions`` trailing dimensions of size 1."""
    return scale.reshape(*scale.shape, *(1,) * dimensions)


def _scale(blocks: Tensor) -> Tensor:
    return _half(blocks, 0)


def _q8_0(blocks: Tensor) -> list[Tensor]:
    return [_signed(blocks[..., 2:])]


def _q4_0(blocks: Tensor) -> list[Tensor]:
    return [_low(blocks[..., 2:]) - 8, _high(blocks[..., 2:]) - 8]


def _q4_1(blocks: Tensor) -> list[Tensor]:
    scale, least, values = _over(_half(blocks, 0), 1), _over(_half(blocks, 2), 1), blocks[..., 4:]
    return [scale * _low(values) + least, scale * _high(values) + least]


def _fifths(blocks: Tensor, at: int) -> list[Tensor]:
    """Return 16 times the fifth bit of each weight, as two tensors [..., 16]. Bit i of four bytes is for weight i."""
    words = [
        blocks[..., first : first + 1].int() | (blocks[..., first + 1 : first + 2].int() << 8) for first in (at, at + 2)
    ]
    return [(((word >> torch.arange(16, dtype=torch.int32)) & 1) << 4).float() for word in words]


def _q5_0(blocks: Tensor) -> list[Tensor]:
    first, second = _fifths(blocks, 2)
    values = blocks[..., 6:]
    return [_low(values) + first - 16, _high(values) + second - 16]


def _q5_1(blocks: Tensor) -> list[Tensor]:
    scale, least, values = _over(_half(blocks, 0), 1), _over(_half(blocks, 2), 1), blocks[..., 8:]
    first, second = _fifths(blocks, 4)
    return [scale * (_low(values) + first) + least, scale * (_high(values) + second) + least]


def _scale_of_k(blocks: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Return the scale and the minimum of one group in each Q4_K or Q5_K block, float32 [..., 1].

    Both are 6-bit integers, times a float16 of the block. For the first four groups, they are the low bits of bytes 4
    to 11. For the other groups, bytes 12 to 15 hold the low 4 bits, and the high bits of bytes 4 to 11 hold the top 2.
    """
    scale, least, both = (blocks[..., at + group % 4 : at + group % 4 + 1] for at in (4, 8, 12))
    if group < 4:
        scale, least = scale & 63, least & 63
    else:
        scale, least = (both & 15) | ((scale >> 6) << 4), (both >> 4) | ((least >> 6) << 4)
    return scale.float() * _over(_half(blocks, 0), 1), least.float() * _over(_half(blocks, 2), 1)


def _of_k(blocks: Tensor, values: Callable[[int], Tensor]) -> list[Tensor]:
    """Return the dequantized groups of each Q4_K or Q5_K block, given a function for their integers, [..., 32]."""
    scales = (_scale_of_k(blocks, group) for group in range(8))
    return [scale * values(group) - least for group, (scale, least) in enumerate(scales)]


def _fours_of_k(blocks: Tensor, at: int, group: int) -> Tensor:
    """Return the low four bits of a group's weights. Each pair of groups shares 32 bytes, starting at ``at``."""
    begin = at + group // 2 * 32
    both = blocks[..., begin : begin + 32]
    return both >> 4 if group % 2 else both & 15


def _q4_k(blocks: Tensor) -> list[Tensor]:
    return _of_k(blocks, lambda group: _fours_of_k(blocks, 16, group).float())


def _q5_k(blocks: Tensor) -> list[Tensor]:
    def values(group: int) -> Tensor:
        fifth = (blocks[..., 16:48] >> group) & 1  # bit g of byte i belongs to weight i of group g
        return (_fours_of_k(blocks, 48, group) | (fifth << 4)).float()

    return _of_k(blocks, values)


def _q6_k(blocks: Tensor) -> list[Tensor]:
    """Unpack two halves of eight groups of 16 weights into eight tensors [..., 2, 16], times the groups' int8 scales.

    `FORMATS` has the float16 scale of the whole block.
    """
    low = blocks[..., :128].unflatten(-1, (2, 64))
    high = blocks[..., 128:192].unflatten(-1, (2, 32))
    scales = blocks[..., 192:208].unflatten(-1, (2, 8))
    groups: list[Tensor] = []
    for group in range(8):
        begin, side = group % 4 * 16, group % 2 * 16
        four = low[..., begin : begin + 16]
        four = four >> 4 if group >= 4 else four & 15
        two = (high[..., side : side + 16] >> group // 2 * 2) & 3
        groups.append(_signed(scales[..., group : group + 1]) * ((four | (two << 4)).float() - 32))
    return groups


@dataclass(frozen=True)
class BlockFormat:
    """The storage format of a block of weights."""

    size: int
    """The number of tensor elements per block: bytes, or floating-point numbers."""
    shape: tuple[int, ...]
    """The shape of an unpacked block; in row-major order, the weights are in the order of the row."""
    pieces: int
    """The axis of ``shape`` along which `unpack` returns separate tensors."""
    unpack: Callable[[Tensor], list[Tensor]]
    """Maps blocks, [..., size], to the pieces, float32 [..., *shape without that axis]."""
    scale: Callable[[Tensor], Tensor] | None = None
    """Maps blocks, [..., size], to a scale per block, float32 [...]; None if `unpack` applies all scales."""

    @property
    def weights(self) -> int:
        """The number of weights in a block."""
        return torch.Size(self.shape).numel()

    def unpacked(self, rows: Tensor) -> Tensor:
        """Dequantize ``rows`` of blocks, [..., n * size], to float32 [..., n * weights]."""
        blocks = rows.unflatten(-1, (-1, self.size))
        weights = torch.stack(self.unpack(blocks), self.pieces - len(self.shape))
        if self.scale is not None:
            weights = weights * _over(self.scale(blocks), len(self.shape))
        return weights.flatten(-1 - len(self.shape))


FORMATS = {
    "Q4_0": BlockFormat(18, (2, 16), 0, _q4_0, _scale),
    "Q4_1": BlockFormat(20, (2, 16), 0, _q4_1),
    "Q5_0": BlockFormat(22, (2, 16), 0, _q5_0, _scale),
    "Q5_1": BlockFormat(24, (2, 16), 0, _q5_1),
    "Q8_0": BlockFormat(34, (1, 32), 0, _q8_0, _scale),
    "Q4_K": BlockFormat(144, (8, 32), 0, _q4_k),
    "Q5_K": BlockFormat(176, (8, 32), 0, _q5_k),
    "Q6_K": BlockFormat(210, (2, 8, 16), 1, _q6_k, lambda blocks: _half(blocks, 208)),
    **dict.fromkeys(("F16", "BF16", "F32"), BlockFormat(32, (1, 32), 0, lambda blocks: [blocks.float()])),
}
"""Block formats, keyed by the tensor type in a GGUF file."""


class BlockLinear(PackedLinear):
    """A linear layer whose weight is in blocks, [N, K / weights * size], in one of the `FORMATS`."""

    def __init__(self, weight: Tensor | torch.nn.Parameter, kind: str, bias: Any):
        super().__init__(weight.shape[0], bias)
        self.weight, self._kind = frozen(weight), kind

    def _fused(self, x: Tensor) -> Tensor:
        return block_linear(x, self.weight, self._kind, True)

    def _unpacked(self, x: Tensor, rows: slice) -> Tensor:
        return block_linear(x, self.weight[rows], self._kind, False)


def _product(x: Tensor, weight: Tensor, kind: str, fused: bool) -> Tensor:
    layout = FORMATS[kind]
    if not fused:
        return torch.nn.functional.linear(x, layout.unpacked(weight))
    shape = layout.shape
    blocks = weight.unflatten(-1, (-1, layout.size))
    parts = x.unflatten(-1, (1, -1, *shape)).unbind(layout.pieces - len(shape))
    first, *others = (part * piece for part, piece in zip(parts, layout.unpack(blocks), strict=True))
    total = sum(others, first)
    if layout.scale is not None:
        total = total * _over(layout.scale(blocks), len(shape) - 1)
    # Sum each lane of the last dimension first, then sum the lanes.
    return total.flatten(-len(shape), -2).sum(-2).sum(-1)


@torch.library.custom_op("fx_importer_llm::block_linear", mutates_args=())
def block_linear(x: Tensor, weight: Tensor, kind: str, fused: bool) -> Tensor:
    """Return the float32 ``x`` [..., K] times the transpose of a weight in format ``kind``, [N, K / weights * size].

    This is one op in exported programs, where dequantization would take about 40 per layer. With ``fused``, it
    decomposes to elementwise multiplies and sums instead of a matmul.
    """
    return _product(x, weight, kind, fused)


@block_linear.register_fake
def _(x: Tensor, weight: Tensor, kind: str, fused: bool) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


DECOMPOSITIONS = {torch.ops.fx_importer_llm.block_linear.default: _product}


class BlockEmbedding(torch.nn.Module):
    """An embedding table in blocks, [V, K / weights * size]. ``factor`` scales the rows."""

    def __init__(self, weight: Tensor, kind: str, dtype: torch.dtype, factor: Tensor | None):
        super().__init__()
        self.weight = frozen(weight)
        self._format, self._dtype = FORMATS[kind], dtype
        self._factor = None if factor is None else float(factor)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embeddings, [..., K], of ``tokens`` [...]."""
        rows = self._format.unpacked(torch.nn.functional.embedding(tokens, self.weight)).to(self._dtype)
        return rows if self._factor is None else rows * self._factor
