"""Quantize and dequantize operators as quantizers insert them, and constants that are quantized: shared by tests."""

from __future__ import annotations

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
from torch import Tensor, nn

q = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)
SATURATES = pytest.mark.filterwarnings("ignore:quantized values saturate")
"""Of programs with scales that are written by hand, and random inputs."""
PRO_INT = "version=1.0 profiles=pro_int extensions="


def quantize(x: Tensor, scale: float = 0.05, zero_point: int = 7) -> Tensor:
    return q.quantize_per_tensor(x, scale, zero_point, *INT8)


def dequantize(x: Tensor, scale: float = 0.02, zero_point: int = -11) -> Tensor:
    return q.dequantize_per_tensor(x, scale, zero_point, *INT8)


def some(*shape: int) -> Tensor:
    return torch.randint(-127, 128, shape, dtype=torch.int8)


class Weights(nn.Module):
    """A weight that is quantized per channel, along ``axis``, with a bias."""

    def __init__(self, *shape: int, axis: int = 0, zero_point: int = 0):
        super().__init__()
        self.axis = axis
        self.register_buffer("values", some(*shape))
        self.register_buffer("scales", torch.rand(shape[axis]) / 500 + 0.001)
        self.register_buffer("zeros", torch.full((shape[axis],), zero_point))
        self.bias = nn.Parameter(torch.randn(shape[axis]) / 4)

    def weight(self) -> Tensor:
        return q.dequantize_per_channel(self.values, self.scales, self.zeros, self.axis, -127, 127, torch.int8)

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.weight(), self.bias
