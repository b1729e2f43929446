"""Quantized programs in integers: for TOSA's integer profile, bit-exact on the reference model, a step from q/dq."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer import UsageError, lower
from fx_importer.quantization.scales import NoIntegerForm, multiplier_and_shift, rescaled
from fx_importer.results.lowered import Lowered
from tests.engines.test_engine_table import needs_tosa
from tests.quantization.quantize_operators import PRO_INT, SATURATES, Weights, dequantize, quantize

pytestmark = SATURATES


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


class Operators(torch.nn.Module):
    """Operators between dequantize and quantize operators, each with a result of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.full, self.deep, self.groups = Weights(6, 4, 3, 3), Weights(8, 1, 3, 5), Weights(6, 2, 1, 1)
        self.rows, self.line = Weights(5, 7), Weights(6, 4, 3)
        self.factor: Tensor
        self.register_buffer("factor", torch.full((1, 1, 1), 0.7))

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        a, b = dequantize(x), dequantize(y, 0.034, 3)
        weight, bias = self.rows()
        return {
            "conv": quantize(F.relu6(F.conv2d(a, *self.full(), stride=2, padding=1))),
            "conv, same": quantize(F.conv2d(a, *self.deep(), padding="same", groups=4)),
            "conv, dilated": quantize(F.conv2d(a, *self.full(), dilation=2)),
            "conv, groups": quantize(F.conv2d(a, *self.groups(), groups=2)),
            "conv, padded": quantize(F.conv2d(F.pad(a, (0, 1, 2, 1)), *self.full(), stride=2)),
            "conv, padded twice": quantize(F.conv2d(F.pad(a, (1, 0, 0, 1)), *self.full(), padding=1)),
            "conv, padded by more": quantize(F.conv2d(F.pad(a, (3, 0, 0, 1)), *self.full())),
            "conv, one axis": quantize(F.conv1d(a[:, :, 0], *self.line(), stride=2, padding=1)),
            "softmax": quantize(torch.softmax(a, 2), 1 / 256, -128),
            "linear": quantize(F.linear(a, *self.rows())),
            "addmm": quantize(torch.addmm(bias, a[0, 1], weight.t())),
            "matmul": quantize(a @ b.transpose(2, 3), 0.1),
            "add": quantize(a + b),
            "sub": quantize(torch.relu_(a - b[:, :1])),
            "mul": quantize(a * b, 0.03),
            "max_pool": quantize(F.max_pool2d(a, 3, 2, 1, ceil_mode=True), 0.02, -11),
            "avg_pool": quantize(F.avg_pool2d(a, 3, 2, 1, count_include_pad=False)),
            "adaptive": quantize(F.adaptive_avg_pool2d(a[..., :6], (4, 3))),
            "mean": quantize(a.mean((-1, 1)), 0.01),
            "cat": quantize(torch.cat([a, b, b.clamp(0.5, -0.5)], 1)),
            "chunk": quantize(torch.mul(*a.chunk(2, 1)), 0.03),
            "pad": quantize(F.pad(a, (1, 2, 0, 1)), 0.02, -11),
            "moved": quantize(a.permute(0, 2, 3, 1).flatten(1)[:, 3:50].clamp(-0.5, 1)),
            "table": quantize(F.hardswish(a)),
            "table, more axes": quantize(a[0, 1] * self.factor, 0.01),
            "chain": quantize(torch.tanh(a * 2 + 1) * torch.sigmoid(a), 0.01),
        }


def inputs() -> tuple[Tensor, Tensor]:
    x, y = torch.randint(-128, 128, (2, 1, 4, 8, 7)).to(torch.int8)
    return x, y


def remarks(lowered: Lowered) -> list[str]:
    return list(lowered.trace.stages[0].remarks)


@needs_tosa
def test_operators_in_the_integer_profile() -> None:
    model, given = Operators(), inputs()
    lowered = lower(model, *given, output_type="tosa", quantized="integer", tosa_target=PRO_INT)
    assert "f32" not in str(lowered.module)
    (summary,) = remarks(lowered)
    assert summary.split()[1] == summary.split()[3]
    assert lowered.verify(*given, backends=["tosa_reference"], rtol=0, atol=0)
    results, expected = lowered.run(*given), model(*given)
    steps = {name: (results[name].int() - each.int()).abs().max().item() for name, each in expected.items()}
    assert all(each.unique().numel() > 5 for each in expected.values())
    assert max(steps.values()) <= 1, steps
    assert not any(steps[name] for name in ("max_pool", "pad", "table", "table, more axes", "chain")), steps


@pytest.mark.slow_rows("^linalg")
@pytest.mark.parametrize("output_type, backend", [("linalg-on-tensors", "jit"), ("stablehlo", "stablehlo")])
def test_operators_without_floats(output_type: str, backend: str) -> None:
    model, given = Operators(), inputs()
    lowered = lower(model, *given, output_type=output_type, quantized="integer")
    text = str(lowered.module)
    assert "f32" not in text
    assert "f64" not in text.replace("tensor<1xf64>", "")  # the value of a pad
    assert lowered.verify(*given, backends=[backend], rtol=0, atol=0)


@pytest.mark.slow_rows("^stablehlo-iree$", "^stablehlo-xla")
@pytest.mark.parametrize(
    "output_type, engine", [("linalg-on-tensors", "iree"), ("stablehlo", "iree"), ("stablehlo", "xla")]
)
def test_network_on_engines(output_type: str, engine: str) -> None:
    pytest.importorskip({"iree": "iree.compiler", "xla": "jax"}[engine])
    model, x = SmallNet(), torch.randint(-128, 128, (1, 4, 16, 16), dtype=torch.int8)
    lowered = lower(model, x, output_type=output_type, quantized="integer")
    assert lowered.verify(x, backends=[engine], rtol=0, atol=0)


class SmallNet(torch.nn.Module):
    """Depthwise and pointwise convolutions around a residual addition, pools, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise, self.pointwise = Weights(8, 4, 3, 3), Weights(8, 1, 3, 3), Weights(8, 8, 1, 1)
        self.classifier = Weights(5, 8)

    def forward(self, x: Tensor) -> Tensor:
        def stored(y: Tensor, *params: float) -> Tensor:
            return dequantize(quantize(y, *params), *params)  # type: ignore[arg-type]

        x = stored(F.relu6(F.conv2d(dequantize(x), *self.stem(), stride=2, padding=1)), 0.04, -128)
        y = stored(F.relu(F.conv2d(x, *self.depthwise(), padding=1, groups=8)), 0.03, -128)
        x = stored(x + stored(F.conv2d(y, *self.pointwise()), 0.02, 4), 0.05, -9)
        x = stored(F.hardswish(F.max_pool2d(x, 2)), 0.04, -60)
        x = stored(F.adaptive_avg_pool2d(x, 1), 0.02, -20).flatten(1)
        return quantize(F.linear(x, *self.classifier()), 0.01, 3)


@needs_tosa
def test_network_in_the_integer_profile() -> None:
    model, x = SmallNet(), torch.randint(-128, 128, (1, 4, 16, 16), dtype=torch.int8)
    lowered = lower(model, x, output_type="tosa", quantized="integer", tosa_target=PRO_INT)
    assert remarks(lowered) == ["quantized: 11 of 11 operators are integer"]
    assert lowered.verify(x, backends=["tosa_reference", "jit"], rtol=0, atol=0)
    assert (lowered.run(x).int() - model(x).int()).abs().max() <= 1


@needs_tosa
def test_float_leftovers_are_listed() -> None:
    weights = Weights(3, 4, zero_point=2)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = weights

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            x = dequantize(quantize(x))
            y = quantize(F.linear(x, *self.weights()))
            return y, quantize(torch.cumsum(x, -1)), torch.tanh(x), quantize(x + torch.exp(x[:1]))

    x = torch.randn(5, 4)
    lowered = lower(Model(), x, output_type="tosa", quantized="integer")
    assert lowered.verify(x, backends=["tosa_reference"])
    said = remarks(lowered)
    assert said[0] == "quantized: 0 of 6 operators are integer"
    assert "aten.linear.default: its weights are asymmetric (a zero point is 2): quantize them symmetrically" in said[1]
    assert "aten.cumsum.default: aten.cumsum.default has no integer form" in said[2]
    assert "aten.tanh.default: its result is not quantized to int8" in said[3]
    assert "aten.add.Tensor: its operand exp is not quantized to int8" in said[-1]


@pytest.mark.parametrize(
    "scale, zero_point, said",
    [
        (0.0, 0, "the scale is 0.0; scales are positive and finite: calibrate with inputs that are finite"),
        (float("nan"), 0, "the scale is nan"),
        (0.1, 300, "the zero point 300 is outside of the range -128 to 127"),
    ],
)
def test_scales_that_are_none(scale: float, zero_point: int, said: str) -> None:
    def model(x: Tensor) -> Tensor:
        return quantize(dequantize(x, scale, zero_point))

    with pytest.raises(UsageError, match=said):
        lower(model, inputs()[0], output_type="tosa", quantized="integer")


@pytest.mark.parametrize("quantized", ["float", "integer"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int16])
def test_operands_of_other_dtypes(dtype: torch.dtype, quantized: str) -> None:
    def model(x: Tensor) -> Tensor:
        return quantize(torch.relu(dequantize(x, 0.1, 0)))

    with pytest.raises(UsageError, match=f"the program's input 'x' is {dtype}; the operator takes torch.int8"):
        lower(model, torch.ones(2).to(dtype), output_type="tosa", quantized=quantized)


def test_options_that_contradict() -> None:
    with pytest.raises(UsageError, match="computes biases, multipliers and shifts from the weights"):
        lower(torch.relu, torch.ones(2), output_type="tosa", quantized="integer", weights="external")
    with pytest.raises(UsageError, match="quantized='integer' is for linalg-on-tensors, tosa, .* and not for torch"):
        lower(torch.relu, torch.ones(2), output_type="torch", quantized="integer")


def test_rescale_rounds_as_tosa() -> None:
    values = torch.tensor([-(2**29) + 1, -7, -3, -1, 0, 1, 3, 5, 2**29 - 1])
    for scale in (0.5, 0.25, 1 / 3, 1e-4, 1.7e-9, 1e-30):
        multiplier, shift = multiplier_and_shift(scale, 2**29)
        assert shift in range(2, 63)
        assert abs(multiplier / 2**shift - scale) <= max(scale * 2**-30, 2.0**-62)
        exact = [(each * multiplier * 2 + 2**shift) // 2 ** (shift + 1) for each in values.tolist()]
        assert rescaled(values, multiplier, shift).tolist() == exact


@pytest.mark.parametrize("scale, bound", [(2.0**30, 1), (1.0, 2**29), (1e-6, 2**31)])
def test_rescale_out_of_range(scale: float, bound: float) -> None:
    with pytest.raises(NoIntegerForm, match="out of the range of TOSA's rescale"):
        multiplier_and_shift(scale, bound)


@pytest.mark.parametrize("quantized", ["float", "integer"])
def test_lowerings_are_cached(quantized: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(tmp_path))

    def text(scale: float) -> tuple[str, str]:
        def model(x: Tensor) -> Tensor:
            return quantize(torch.relu(dequantize(x)), scale)

        lowered = lower(model, inputs()[0], output_type="tosa", quantized=quantized, cache=True)
        return str(lowered.module), lowered.trace.stages[-1].remarks[-1]

    first, kept = text(0.05)
    again, taken = text(0.05)
    assert (kept[:4], taken[:5], again) == ("kept", "taken", first)
    assert text(0.06)[0] != first
