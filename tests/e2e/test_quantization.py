"""PT2E-quantized programs, bit-exact against eager, and to the other output types."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
import torch.nn.functional as F
from torch import Tensor

from fx_importer import OutputType, lower
from tests.quantization.quantize_operators import SATURATES

pytestmark = SATURATES

q = torch.ops.quantized_decomposed
RANGES = {
    torch.int8: (-128, 127),
    torch.uint8: (0, 255),
    torch.int16: (-(2**15), 2**15 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


class Layer(torch.nn.Module):
    """A linear layer or a convolution between quantized activations, with weights quantized per channel."""

    def __init__(self, kind: str, dtype: torch.dtype):
        super().__init__()
        self.apply_weight = {"linear": F.linear, "conv2d": F.conv2d}[kind]
        self.levels = (*RANGES[dtype], dtype)
        shape = {"linear": (5, 4), "conv2d": (5, 4, 2, 2)}[kind]
        self.register_buffer("weight", torch.randint(-127, 128, shape, dtype=torch.int8))
        self.register_buffer("scales", torch.rand(5) / 10 + 0.01)
        self.register_buffer("zero_points", torch.zeros(5, dtype=torch.int64))
        self.bias = torch.nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = q.dequantize_per_tensor(q.quantize_per_tensor(x, 0.031, 3, *self.levels), 0.031, 3, *self.levels)
        weight = q.dequantize_per_channel(self.weight, self.scales, self.zero_points, 0, -127, 127, torch.int8)
        y = q.quantize_per_tensor(self.apply_weight(x, weight, self.bias), 0.05, 7, *self.levels)
        return y, q.dequantize_per_tensor(y, 0.05, 7, *self.levels)


INPUTS = {"linear": torch.randn(3, 4) * 5, "conv2d": torch.randn(2, 4, 3, 5) * 5}


def check(model: torch.nn.Module, *inputs: Tensor) -> None:
    results = lower(model, *inputs, output_type="linalg").run(*inputs)
    expected = model(*inputs)
    for ours, eager in zip(results, expected, strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", RANGES, ids=str)
def test_linear(dtype: torch.dtype) -> None:
    check(Layer("linear", dtype), INPUTS["linear"])


def test_convolution() -> None:
    check(Layer("conv2d", torch.uint8), INPUTS["conv2d"])


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("output_type", [OutputType.TORCH, OutputType.TOSA, OutputType.STABLEHLO])
def test_lowers(kind: str, output_type: OutputType) -> None:
    module = lower(Layer(kind, torch.int8), INPUTS[kind], output_type=output_type).module
    assert "quantized_decomposed" not in str(module)


class Calls(torch.nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.forward = lambda x, scale, zero_point: function(x, scale, zero_point)


def test_scales_in_tensors() -> None:
    def function(x: Tensor, scale: Tensor, zero_point: Tensor):
        by_tensors = q.quantize_per_tensor.tensor(x, scale, zero_point, -128, 127, torch.int8)
        back = q.dequantize_per_tensor.tensor(by_tensors, scale, zero_point, -128, 127, torch.int8)
        limits = torch.tensor(0), torch.tensor(255)
        return by_tensors, back, q.quantize_per_tensor.tensor2(x, scale, zero_point, *limits, torch.uint8)

    check(Calls(function), torch.randn(3, 4) * 3, torch.tensor([0.03]), torch.tensor([3]))


def test_computed_scales() -> None:
    def function(x: Tensor, scale: Tensor, zero_point: Tensor):
        scale, zero_point = q.choose_qparams.tensor(x, -128, 127, 1e-7, torch.int8)
        symmetric = q.choose_qparams_symmetric.tensor(x, 0, 255, 1e-7, torch.uint8)
        return scale, zero_point, q.quantize_per_tensor.tensor(x, scale, zero_point, -128, 127, torch.int8), *symmetric

    check(Calls(function), torch.randn(3, 4), torch.ones(1), torch.ones(1))


def test_scales_per_channel_token_and_group() -> None:
    def function(x: Tensor, scale: Tensor, zero_point: Tensor):
        channels = q.quantize_per_channel(x, scale, zero_point, 1, 0, 255, torch.uint8)
        scales, zeros = q.choose_qparams_per_token_asymmetric(x, torch.int8)
        tokens = q.quantize_per_token(x, scales, zeros, -128, 127, torch.int8)
        back = q.dequantize_per_token(tokens, scales, zeros, -128, 127, torch.int8, torch.float32)
        groups, middle = x.abs()[:, :2] + 0.1, torch.zeros(3, 2)
        grouped = q.quantize_per_channel_group(x, groups, middle, -8, 7, torch.int8, 2)
        ungrouped = q.dequantize_per_channel_group(grouped, groups, middle, -8, 7, torch.int8, 2, torch.float32)
        return channels, tokens, back, *q.choose_qparams_per_token(x, torch.int8), grouped, ungrouped

    check(Calls(function), torch.randn(3, 4), torch.rand(4) + 0.1, torch.arange(4))


def test_raw_and_backend_legal_ops_keep_the_operators() -> None:
    name = "quantized_decomposed.dequantize_per_channel.default"
    raw = str(lower(Layer("linear", torch.int8), INPUTS["linear"]).module)
    assert "torch.quantized_decomposed.quantize_per_tensor" in raw
    kept = lower(Layer("linear", torch.int8), INPUTS["linear"], output_type="torch", backend_legal_ops=[name])
    assert str(kept.module).count("quantized_decomposed") == 1


def test_torchao_operators_are_decomposed() -> None:
    library = torch.library.Library("torchao_like", "DEF")
    library.define(
        "dequantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, ScalarType input_dtype,"
        " Scalar? quant_min=None, Scalar? quant_max=None, ScalarType output_dtype=float) -> Tensor"
    )

    def dequantize(x, block, scale, zero_point, dtype, low=None, high=None, to=torch.float32):
        groups = x.reshape(x.shape[0], -1, block[-1]).to(to)
        return ((groups - zero_point.unsqueeze(-1)) * scale.unsqueeze(-1)).reshape(x.shape)

    library.impl("dequantize_affine", dequantize, "CompositeImplicitAutograd")

    class Dequantizes(torch.nn.Module):
        def forward(self, x, scale, zero_point):
            op = torch.ops.torchao_like.dequantize_affine
            return (op(x, [1, 2], scale, zero_point, torch.int8, -128, 127),)

    inputs = torch.randint(-128, 127, (3, 4), dtype=torch.int8), torch.rand(3, 2), torch.randint(-3, 3, (3, 2))
    check(Dequantizes(), *inputs)
