"""int16 activations with int8 weights: bit-exact with accumulators of 48 bits, and few steps from q/dq."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fx_importer import UsageError, accuracy, lower, quantize
from fx_importer.quantization.qdq import kind_of
from tests.engines.test_engine_table import needs_tosa
from tests.quantization.quantize_operators import Weights, q

INT16 = (-(2**15), 2**15 - 1, torch.int16)
KINDS = {"tosa": ["tosa_reference", "jit"], "linalg-on-tensors": ["jit"], "stablehlo": ["stablehlo"]}


def stored(x: Tensor, scale: float = 2e-4) -> Tensor:
    return q.quantize_per_tensor(x, scale, 0, *INT16)


class Wide(nn.Module):
    """Operators on int16, each with a result of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.full, self.deep, self.rows = Weights(6, 4, 3, 3), Weights(8, 1, 3, 3), Weights(5, 7)
        self.up, self.parts = Weights(4, 3, 3, 3, axis=1), Weights(4, 2, 3, 2, axis=1)
        self.norm = nn.LayerNorm(7)
        self.mask = nn.Buffer(torch.rand(8, 7) > 0.4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        a = q.dequantize_per_tensor(x, 1e-4, 0, *INT16)
        return {
            "conv": stored(torch.relu(F.conv2d(a, *self.full(), stride=2, padding=1))),
            "depthwise": stored(F.conv2d(a, *self.deep(), padding=1, groups=4)),
            "linear": stored(F.linear(a, *self.rows())),
            "matmul": stored(a @ a.transpose(2, 3), 2e-3),
            "add": stored(a + a.flip(1)),
            "mul": stored(a * a.flip(1), 5e-4),
            "mean": stored(a.mean((2, 3))),
            "average pool": stored(F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), 1e-4),
            "average pool of zeros": stored(F.avg_pool2d(a, (3, 2), 2, 1)),
            "transposed": stored(F.conv_transpose2d(a, *self.up(), stride=2, padding=1)),
            "transposed in groups": stored(F.conv_transpose2d(a, self.parts()[0], stride=(2, 1), groups=2)),
            "max pool": stored(F.max_pool2d(a, 3, 2, 1), 1e-4),
            "norm": stored(self.norm(a)),
            "gelu": stored(F.gelu(a)),
            "softmax": stored(torch.softmax(a, -1), 2.0**-15),
            "softmax of some": stored(torch.softmax(torch.where(self.mask, a, -math.inf), -1), 2.0**-15),
            "int8": q.quantize_per_tensor(torch.tanh(a), 1 / 128, 0, -128, 127, torch.int8),
        }


LOOSE = {"softmax": 8, "softmax of some": 8, "norm": 8, "gelu": 2}
"""Steps of int16: powers have 15 bits; roots 2⁻¹⁵ of relative error; tables are linear between 513 places."""


@pytest.mark.slow_rows("linalg")
@pytest.mark.parametrize(
    "output_type",
    [pytest.param("tosa", marks=needs_tosa), "linalg-on-tensors", pytest.param("stablehlo", marks=pytest.mark.slow)],
)
def test_int16(output_type: str) -> None:
    torch.manual_seed(0)
    model, x = Wide().eval(), torch.randint(-(2**15), 2**15, (1, 4, 8, 7)).to(torch.int16)
    target = "version=1.0 profiles=pro_int extensions=int16" if output_type == "tosa" else None
    lowered = lower(model, x, output_type=output_type, quantized="integer", tosa_target=target)
    assert "f32" not in str(lowered.module)
    (summary,) = lowered.trace.stages[0].remarks
    assert summary.split()[1] == summary.split()[3]
    assert lowered.verify(x, backends=KINDS[output_type], rtol=0, atol=0)
    results, expected = lowered.run(x), model(x)
    steps = {name: (results[name].int() - each.int()).abs().max().item() for name, each in expected.items()}
    assert all(each <= LOOSE.get(name, 1) for name, each in steps.items()), steps


def test_quantize_to_int16() -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.Hardswish(), nn.Flatten(2), nn.LayerNorm(36), nn.Linear(36, 4)
    model, images = nn.Sequential(*layers).eval(), [torch.randn(1, 3, 8, 8) for _ in range(2)]
    ratios: list[float] = []
    for activations in ("int8", "int16"):
        quantized = quantize(model, images, activations=activations, observer="minmax", integer_io=True)
        ratios.append(accuracy(model, quantized, images).result)
    assert ratios[1] > ratios[0] + 4  # what is left is the error of weights
    with pytest.raises(UsageError, match="activations is 'int8', 'int16', 'mixed', and not 'int4'"):
        quantize(model, images, activations="int4")


class Encoder(nn.Module):
    """Embeddings and positions, and a layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.names, self.places = nn.Embedding(9, 16), nn.Parameter(torch.randn(6, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.names(x) + self.places)


@needs_tosa
def test_sums_and_norms_of_int16() -> None:
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    model, x = Encoder().eval(), torch.randint(0, 9, (1, 6), dtype=torch.int32)
    quantized = quantize(model, [x], activations="mixed", integer_io=True)
    dtypes = {node.args[0].name: node.args[-1] for node in quantized.graph.nodes if kind_of(node) == "quantize"}
    assert dtypes["softmax"] == dtypes["matmul_1"] == torch.int8
    assert dtypes["relu"] == dtypes["linear_3"] == dtypes["add_1"] == torch.int16
    (scale,) = quantized.meta["result_scales"]
    torch.testing.assert_close(quantized(x) * scale[0], model(x), rtol=0, atol=0.05)
    target = "version=1.0 profiles=pro_int extensions=int16"
    lowered = lower(quantized, x, output_type="tosa", quantized="integer", tosa_target=target)
    counts, *floats = lowered.trace.stages[0].remarks
    assert not floats, counts
    assert lowered.verify(x, backends=["tosa_reference"], rtol=0, atol=0)


@needs_tosa
def test_int16_convolution_in_groups() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(6, 9, 3, groups=3, stride=2), nn.ReLU()).eval()
    images = [torch.randn(2, 6, 8, 8) for _ in range(2)]
    quantized = quantize(model, images, activations="int16")
    lowered = lower(quantized, images[0], output_type="tosa", quantized="integer")
    assert lowered.verify(images[0], backends=["tosa_reference"], rtol=0, atol=0)
