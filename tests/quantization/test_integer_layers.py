"""Norms, resizes, transposed convolutions, reductions and uint8 in integers: bit-exact, and a step from q/dq."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fx_importer import lower
from tests.engines.test_engine_table import needs_tosa
from tests.quantization.quantize_operators import INT8, SATURATES, Weights, q, quantize

pytestmark = SATURATES

UINT8 = (0, 255, torch.uint8)
X = 0.02, -11
"""Scale and zero point of the first input."""
KINDS = {"tosa": "tosa_reference", "linalg-on-tensors": "jit", "stablehlo": "stablehlo"}


class Layers(nn.Module):
    """Operators between dequantize and quantize operators, each with a result of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.row, self.rows = nn.LayerNorm(7), nn.LayerNorm([8, 7])
        self.groups, self.square = nn.GroupNorm(2, 4, eps=1e-3), nn.RMSNorm(7)
        for each in (self.row, self.rows, self.groups, self.square):
            for parameter in each.parameters():
                nn.init.normal_(parameter)
        self.up, self.grouped = Weights(4, 6, 3, 3, axis=1), Weights(4, 3, 3, 2, axis=1)
        self.bias = nn.Parameter(torch.randn(6))
        self.mask = nn.Buffer(torch.rand(8, 7) > 0.4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        a = q.dequantize_per_tensor(x, *X, *INT8)
        masked = torch.where(self.mask, a, -math.inf)
        return {
            "layer norm": quantize(self.row(a)),
            "layer norm of images": quantize(self.rows(a)),
            "group norm": quantize(self.groups(a)),
            "rms norm": quantize(self.square(a)),
            "nearest": quantize(F.interpolate(a, scale_factor=2.0), *X),
            "nearest, odd": quantize(F.interpolate(a, size=(5, 11)), *X),
            "bilinear": quantize(F.interpolate(a, scale_factor=2.0, mode="bilinear"), *X),
            "bilinear, odd": quantize(F.interpolate(a, size=(5, 11), mode="bilinear")),
            "bilinear, corners": quantize(F.interpolate(a, size=(15, 3), mode="bilinear", align_corners=True), *X),
            "transposed": quantize(F.conv_transpose2d(a, self.up.weight(), self.bias, 2, 1, output_padding=1), 0.05),
            "transposed, dilated": quantize(
                torch.relu(F.conv_transpose2d(a, self.up.weight(), None, (1, 3), dilation=2))
            ),
            "transposed, groups": quantize(
                F.conv_transpose2d(a, self.grouped.weight(), None, (2, 3), (1, 0), groups=2)
            ),
            "mean of all": quantize(a.mean(), 0.001),
            "sum of all": quantize(a.sum(), 0.9),
            "amax": quantize(a.amax((1, 3)), *X),
            "min": quantize(a.min(2)[0], *X),
            "pad": quantize(F.pad(a, (1, 2), value=0.31337), *X),
            "reflected": quantize(F.pad(a, (1, 2, 2, 1), mode="reflect"), *X),
            "replicated": quantize(F.pad(a, (1, 2, 2, 1), mode="replicate"), *X),
            "softmax of some": quantize(torch.softmax(masked, -1), 1 / 256, -128),
            "constant": quantize(self.bias, 0.02, 3) + 0,
        }


MOVED = ("nearest", "nearest, odd", "amax", "min", "pad", "reflected", "replicated", "constant")


@pytest.mark.slow_rows("linalg")
@pytest.mark.parametrize(
    "output_type",
    [pytest.param("tosa", marks=needs_tosa), "linalg-on-tensors", pytest.param("stablehlo", marks=pytest.mark.slow)],
)
def test_layers(output_type: str) -> None:
    torch.manual_seed(0)
    model, x = Layers().eval(), torch.randint(-128, 128, (1, 4, 8, 7), dtype=torch.int8)
    target = "version=1.0 profiles=pro_int extensions=" if output_type == "tosa" else None
    lowered = lower(model, x, output_type=output_type, quantized="integer", tosa_target=target)
    assert "f32" not in str(lowered.module)
    (summary,) = lowered.trace.stages[0].remarks
    assert summary.split()[1] == summary.split()[3]
    assert lowered.verify(x, backends=[KINDS[output_type]], rtol=0, atol=0)
    results, expected = lowered.run(x), model(x)
    steps = {name: (results[name].int() - each.int()).abs().max().item() for name, each in expected.items()}
    assert max(steps.values()) <= 1, steps
    assert not any(steps[name] for name in MOVED), steps


class Unsigned(nn.Module):
    """A convolution of uint8 activations with uint8 weights around 128, as x86 quantizers give them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", torch.randint(1, 256, (6, 4, 3, 3)).to(torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        x = q.dequantize_per_tensor(x, 0.02, 100, *UINT8)
        weight = q.dequantize_per_tensor(self.values, 0.002, 128, *UINT8)
        y = q.quantize_per_tensor(torch.relu(F.conv2d(x, weight)), 0.03, 0, *UINT8)
        y = q.dequantize_per_tensor(y, 0.03, 0, *UINT8)
        return q.quantize_per_tensor(y + torch.sigmoid(y), 0.03, 7, *UINT8)


@pytest.mark.parametrize("output_type", [pytest.param("tosa", marks=needs_tosa), "linalg-on-tensors", "stablehlo"])
def test_unsigned_activations(output_type: str) -> None:
    torch.manual_seed(0)
    model, x = Unsigned(), torch.randint(0, 256, (1, 4, 8, 7)).to(torch.uint8)
    lowered = lower(model, x, output_type=output_type, quantized="integer")
    assert "f32" not in str(lowered.module)
    assert lowered.verify(x, backends=[KINDS[output_type]], rtol=0, atol=0)
    found, expected = lowered.run(x), model(x)
    assert found.dtype is torch.uint8
    assert expected.unique().numel() > 50
    assert (found.int() - expected.int()).abs().max() <= 1
