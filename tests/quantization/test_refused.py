"""Quantized programs that no integer form is right for: each is an error, or stays in floating point with a reason."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fx_importer import FxImporterError, UsageError, lower, quantize
from tests.engines.test_engine_table import needs_tosa
from tests.quantization.quantize_operators import INT8, SATURATES, q

pytestmark = SATURATES

X = torch.randint(-128, 128, (2, 4), dtype=torch.int8)


def dequantize(x: Tensor) -> Tensor:
    return q.dequantize_per_tensor(x, 0.02, 0, *INT8)


def stored(x: Tensor, zero_point: int = 0) -> Tensor:
    return q.quantize_per_tensor(x, 0.05, zero_point, *INT8)


class Channels(nn.Module):
    """A linear layer of which the weights have a scale for each input, or are asymmetric."""

    def __init__(self, axis: int, zero_point: int = 0):
        super().__init__()
        self.axis = axis
        self.register_buffer("values", torch.randint(-127, 128, (3, 4), dtype=torch.int8))
        self.register_buffer("scales", torch.full(((3, 4)[axis],), 0.01))
        self.register_buffer("zeros", torch.full(((3, 4)[axis],), zero_point))

    def forward(self, x: Tensor) -> Tensor:
        weight = q.dequantize_per_channel(self.values, self.scales, self.zeros, self.axis, -127, 127, torch.int8)
        return stored(F.linear(dequantize(x), weight))


class Filters(nn.Module):
    """A transposed convolution with weights of int16, of which int8 does not have all values."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", torch.full((4, 2, 1, 1), 300, dtype=torch.int16))

    def forward(self, x: Tensor) -> Tensor:
        weight = q.dequantize_per_tensor(self.values, 0.01, 0, -(2**15), 2**15 - 1, torch.int16)
        return stored(F.conv_transpose2d(dequantize(x).reshape(2, 4, 1, 1), weight))


class Square(nn.Module):
    """A product with a weight that a permutation leaves as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", torch.arange(16, dtype=torch.int8).reshape(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        weight = q.dequantize_per_tensor(self.values, 0.01, 0, *INT8)
        return stored(torch.addmm(torch.ones(4), dequantize(x), weight.permute(0, 1)))


def enlarged(x: Tensor) -> Tensor:
    return stored(F.interpolate(dequantize(x).reshape(1, 1, 4, 2), size=(4, 82)))


def island(x: Tensor) -> Tensor:
    return stored(torch.relu(torch.cumsum(dequantize(x), -1)))


def wide(x: Tensor) -> Tensor:
    return q.quantize_per_tensor(torch.tanh(dequantize(x)), 0.001, 5, -(2**15), 2**15 - 1, torch.int16)


@needs_tosa
@pytest.mark.parametrize(
    "model, said",
    [
        (Channels(1), "its weights have scales along axis 1, and not along their output channels"),
        (Channels(0, 3), "its weights are asymmetric (a zero point is 3): quantize them symmetrically"),
        (Filters(), "its weights are torch.int16, and not torch.int8"),
        (Square(), "its weight permute is not a dequantized constant of known values"),
        (enlarged, "in float32, as eager computes places, [4, 2] to [4, 82] reads other elements"),
        (island, "cumsum = aten.cumsum.default: aten.cumsum.default has no integer form"),
        (wide, "tanh = aten.tanh.default: its result is not quantized to int8"),
    ],
)
def test_stays_in_floating_point(model: nn.Module, said: str) -> None:
    lowered = lower(model, X, output_type="tosa", quantized="integer")
    assert any(said in each for each in lowered.trace.stages[0].remarks), lowered.trace.stages[0].remarks
    assert lowered.verify(X, backends=["tosa_reference"])
    with pytest.raises(FxImporterError, match="requires any of \\[pro_fp\\]"):
        lower(model, X, output_type="tosa", quantized="integer", tosa_target="version=1.0 profiles=pro_int extensions=")


def test_calibration_that_is_not_finite() -> None:
    with pytest.raises(UsageError, match="calibration input 0: argument \\[0\\] has values that are not finite"):
        quantize(nn.Linear(4, 4), [torch.full((1, 4), float("nan"))])


def test_calibration_that_is_not_writable() -> None:
    def step(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache[:1] = 1
        return x @ cache

    with pytest.raises(UsageError, match="calibration: 'cache' is written, but .* share memory"):
        quantize(step, [(torch.rand(2, 3), cache) for cache in (torch.rand(3, 4), torch.rand(3, 1).expand(3, 4))])


def test_weights_that_are_zero() -> None:
    model = nn.Linear(4, 3)
    nn.init.zeros_(model.weight)
    x = torch.randn(2, 4)
    lowered = lower(quantize(model, [x]), x, output_type="linalg", quantized="integer")
    assert lowered.trace.stages[0].remarks == ["quantized: 1 of 1 operators are integer"]
    torch.testing.assert_close(lowered.run(x), model(x), rtol=0.05, atol=0.02)
