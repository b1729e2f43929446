"""Programs that others have quantized: results in floating point, operators of Core ATen, and torchao's quantizers."""

from __future__ import annotations

import importlib

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer import lower
from tests.engines.test_engine_table import needs_tosa
from tests.quantization.quantize_operators import dequantize, q, quantize, some


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


class Products(torch.nn.Module):
    """Products of int8 whose results stay in floating point."""

    kernel: Tensor
    line: Tensor
    rows: Tensor
    scales: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernel", some(6, 4, 3, 3))
        self.register_buffer("line", some(6, 4, 3))
        self.register_buffer("rows", some(5, 7))
        self.register_buffer("scales", torch.rand(6) / 500 + 0.001)
        self.bias = torch.nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        a = dequantize(x)
        zeros = torch.zeros(6, dtype=torch.int64)
        kernel = q.dequantize_per_channel(self.kernel, self.scales, zeros, 0, -127, 127, torch.int8)
        line = q.dequantize_per_channel(self.line, self.scales, zeros, 0, -127, 127, torch.int8)
        rows = q.dequantize_per_channel(self.rows, self.scales[:5], zeros[:5], 0, -127, 127, torch.int8)
        return (
            F.conv2d(a, kernel, self.bias, stride=2, padding=1),
            F.conv1d(a[:, :, 0], line, self.bias),
            F.linear(a, rows, self.bias[:5]),
            F.linear(a, rows),
            torch.addmm(self.bias[:5], a[0, 1], rows.t()),
            a @ a.transpose(-1, -2),
        )


@pytest.mark.parametrize(
    "output_type",
    [pytest.param("tosa", marks=needs_tosa), "linalg-on-tensors", pytest.param("stablehlo", marks=pytest.mark.slow)],
)
def test_products_with_results_in_floating_point(output_type: str) -> None:
    model, x = Products(), some(1, 4, 8, 7)
    lowered = lower(model, x, output_type=output_type, quantized="integer")
    assert lowered.trace.stages[0].remarks[0].endswith("operators are integer, 6 with results in floating point")
    assert lowered.verify(x)
    for result, expected in zip(lowered.run(x), model(x), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-5)


def core(x: Tensor, gain: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """Operators as ``run_decompositions`` leaves them."""
    a = dequantize(x)
    return (
        quantize(torch.native_layer_norm(a, [7], gain, bias, 1e-5)[0]),
        quantize(torch.native_group_norm(a, gain[:4], bias[:4], 1, 4, 56, 2, 1e-5)[0]),
        quantize(torch.ops.aten.max_pool2d_with_indices(a, [2, 2])[0], 0.02, -11),
        quantize(F.avg_pool2d(a, 3, 2, 1)),
        quantize(F.avg_pool2d(a, 3, 2, 1, ceil_mode=True)),
        quantize(torch.rsqrt(dequantize(x, 0.02, -128))),  # infinite at zero
    )


@needs_tosa
def test_operators_of_core_aten() -> None:
    class Core(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain, self.bias = (torch.nn.Parameter(torch.rand(7) + by) for by in (0.5, -0.5))

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return core(x, self.gain, self.bias)

    model, x = Core(), some(1, 4, 8, 7)
    lowered = lower(model, x, output_type="tosa", quantized="integer")
    assert lowered.trace.stages[0].remarks == ["quantized: 9 of 9 operators are integer"]
    assert lowered.verify(x, backends=["tosa_reference"], rtol=0, atol=0)
    steps = [
        int((mine.int() - theirs.int()).abs().max()) for mine, theirs in zip(lowered.run(x), model(x), strict=True)
    ]
    assert max(steps) <= 2, steps


@pytest.mark.slow_rows("^True$")
@pytest.mark.filterwarnings("ignore:XNNPACKQuantizer is deprecated")
@needs_tosa
@pytest.mark.parametrize("qat", [False, True])
def test_torchao_quantizer(qat: bool) -> None:
    pytest.importorskip("torchao")
    entry = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    xnnpack = importlib.import_module("torchao.testing.pt2e._xnnpack_quantizer")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten())
    model.append(torch.nn.Linear(36, 5))
    x = torch.randn(2, 3, 8, 8)
    exported = torch.export.export(model, (x,), strict=True).module(check_guards=False)
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True, is_qat=qat)
    prepare = entry.prepare_qat_pt2e if qat else entry.prepare_pt2e
    prepared = prepare(exported, xnnpack.XNNPACKQuantizer().set_global(config))
    prepared(x)
    quantized = entry.convert_pt2e(prepared)
    lowered = lower(quantized, x, output_type="tosa", quantized="integer")
    assert lowered.trace.stages[0].remarks == ["quantized: 4 of 4 operators are integer"]
    assert lowered.verify(x, backends=["tosa_reference"], rtol=0, atol=0)


@needs_tosa
def test_transposed_convolutions_on_the_jit() -> None:
    model, x = torch.nn.ConvTranspose2d(3, 4, 3, 2, padding=1, output_padding=1).eval(), torch.randn(2, 3, 5, 6)
    lowered = lower(model, x, output_type="tosa")
    assert "tosa.transpose_conv2d" in str(lowered.module)
    assert lowered.verify(x, backends=["jit", "tosa_reference"])
