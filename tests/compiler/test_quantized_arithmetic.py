"""``quantized="auto"``: programs of `quantize` are lowered in integers where the output type has them."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_importer import FxImporter, UsageError, decomposes, explain, lower, quantize
from fx_importer.errors import QuantizationWarning
from fx_importer.options import Quantized
from fx_importer.quantization import WITHOUT_RESIZE
from fx_importer.results.lowered import Lowered
from tests.engines.test_engine_table import needs_tosa
from tests.quantization.quantize_operators import dequantize
from tests.quantization.quantize_operators import quantize as stored

FLOATS_ONLY = "version=1.0 profiles=pro_fp extensions="
ENGINES = {"tosa": "tosa_reference", "linalg-on-tensors": "jit", "stablehlo": "stablehlo"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


class Around(nn.Module):
    """A quantized model with an operator after it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * 2


@pytest.fixture(scope="module")
def net() -> tuple[nn.Module, list[Tensor], Any]:
    torch.manual_seed(0)
    model, images = Net().eval(), [torch.randn(1, 3, 6, 6) for _ in range(3)]
    return model, images, quantize(model, images)


def ratio(found: Tensor, expected: Tensor) -> float:
    return 20 * math.log10(float(expected.detach().norm() / (found - expected).detach().norm()))


def is_integer(lowered: Lowered) -> bool:
    assert lowered.options.export.quantized in (Quantized.INTEGER, Quantized.FLOAT)
    return any("fx_importer_integer" in str(node.target) for node in lowered.computed["main"].graph.nodes)


def reloaded(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


FORMS: dict[str, Callable[[Any, Tensor], Any]] = {
    "module": lambda quantized, x: quantized,
    "exported": lambda quantized, x: torch.export.export(quantized, (x,)),
    "strict": lambda quantized, x: torch.export.export(Around(quantized), (x,), strict=True),
    "file": lambda quantized, x: reloaded(torch.export.export(quantized, (x,))),
    "decomposed": lambda quantized, x: torch.export.export(quantized, (x,)).run_decompositions(),
    "inner": lambda quantized, x: Around(quantized),
}


@pytest.mark.slow_rows("^strict$", "^decomposed$")
@pytest.mark.filterwarnings("ignore:.*LeafSpec")  # torch's own, of run_decompositions
@pytest.mark.parametrize("form", FORMS)
def test_quantized_programs_are_integer(net: tuple[nn.Module, list[Tensor], Any], form: str) -> None:
    model, (x, *_), quantized = net
    lowered = lower(FORMS[form](quantized, x), x, output_type="linalg-on-tensors")
    assert is_integer(lowered)
    expected = model(x) * (2 if form in ("strict", "inner") else 1)
    assert ratio(lowered.run(x), expected) > 25


@pytest.mark.parametrize(
    "output_type, activations",
    [
        pytest.param("tosa", "int8", marks=needs_tosa),
        pytest.param("tosa", "int16", marks=needs_tosa),
        ("linalg-on-tensors", "int8"),
        ("stablehlo", "int8"),
    ],
)
def test_every_output_type(net: tuple[nn.Module, list[Tensor], Any], output_type: str, activations: str) -> None:
    model, images, _ = net
    quantized = net[2] if activations == "int8" else quantize(model, images, activations=activations)
    lowered = lower(quantized, images[0], output_type=output_type)
    same = lower(quantized, images[0], output_type=output_type, quantized="integer")
    assert lowered.trace.stages[0].remarks[0].startswith("quantized: 4 of 4 operators are integer")
    assert str(lowered.module) == str(same.module)
    verdict = lowered.verify(images[0], backends=[ENGINES[output_type]])
    assert verdict
    assert any(output.name.endswith("of the model") for check in verdict.checks for output in check.outputs)
    floats = lower(quantized, images[0], output_type=output_type, quantized="float")
    assert not is_integer(floats)
    for each in (lowered, floats):
        assert ratio(each.run(images[0]), model(images[0])) > 25


def other(x: Tensor) -> Tensor:
    """Return Q/DQ of the user."""
    return stored(torch.relu(dequantize(x, 0.1, 0)), 0.1, 0)


def test_other_quantized_programs_are_integer_in_tosa_only() -> None:
    x = torch.randint(-128, 128, (2, 3), dtype=torch.int8)
    assert is_integer(lower(other, x, output_type="tosa"))
    lowered = lower(other, x, output_type="linalg-on-tensors")
    assert not is_integer(lowered)
    (remark,) = lowered.trace.stages[0].remarks
    assert "it has the numbers of eager PyTorch; quantized='integer' may differ by a step" in remark
    assert torch.equal(lowered.run(x), other(x))


@pytest.mark.parametrize("output_type", ["raw", "torch"])
def test_output_types_without_integers(net: tuple[nn.Module, list[Tensor], Any], output_type: str) -> None:
    lowered = lower(net[2], net[1][0], output_type=output_type)
    assert not is_integer(lowered)
    assert f"{output_type} has no integer operators, and " in lowered.trace.stages[0].remarks[0]


@decomposes(torch.ops.aten.relu.default)
def own_relu(x: Tensor) -> Tensor:
    return x.clamp(min=0)


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"weights": "external"}, "computes biases, multipliers and shifts from the weights"),
        ({"weights": "args"}, "pass weights='inline'"),
        ({"keep": ["aten.relu"]}, "keep would not apply to operators that integers replace"),
        ({"lowerings": own_relu}, "lowerings would not apply to operators that integers replace"),
        (
            {"tosa_target": "version=1.0 profiles=pro_fp extensions="},
            "integers cannot be lowered: .* requires any of .pro_int",
        ),
    ],
    ids=["weights", "arguments", "keep", "lowerings", "target"],
)
def test_floating_point_is_never_silent(
    net: tuple[nn.Module, list[Tensor], Any], options: dict[str, Any], reason: str
) -> None:
    x, quantized = net[1][0], net[2]
    with pytest.warns(
        QuantizationWarning, match=f"in floating point: .*{reason}.* Pass quantized='float' if"
    ) as record:
        lowered = lower(quantized, x, output_type="tosa", **options)
    assert record[0].filename == __file__
    assert not is_integer(lowered)
    (remark,) = lowered.trace.stages[0].remarks
    assert remark.startswith("quantized: in floating point: ")
    assert not is_integer(lower(quantized, x, output_type="tosa", quantized="float", **options))


def test_lowerings_of_integer_operators_apply(net: tuple[nn.Module, list[Tensor], Any]) -> None:
    assert is_integer(lower(net[2], net[1][0], output_type="tosa", lowerings=WITHOUT_RESIZE))


def test_importer_of_the_user(net: tuple[nn.Module, list[Tensor], Any]) -> None:
    x, quantized = net[1][0], net[2]
    importer = FxImporter()
    assert is_integer(lower(quantized, x, output_type="tosa", fx_importer=importer))
    assert "tosa.rescale" in str(importer.module)
    importer = FxImporter()
    with pytest.warns(QuantizationWarning):
        lowered = lower(
            quantized, x, output_type="tosa", fx_importer=importer, tosa_target="profiles=pro_fp extensions="
        )
    assert lowered.module is importer.module
    assert not is_integer(lowered)


def test_scales_without_integers() -> None:
    """A program that only floating point can compute stays as it is, and the remark says why."""

    def model(x: Tensor) -> Tensor:
        return stored(torch.relu(dequantize(x, 0.1, 0)), float("nan"), 0)

    x = torch.ones(2, dtype=torch.int8)
    lowered = lower(model, x, output_type="tosa")
    assert "the scale is nan" in lowered.trace.stages[0].remarks[0]
    with pytest.raises(UsageError, match="the scale is nan"):
        lower(model, x, output_type="tosa", quantized="integer")


def test_dynamic_sizes_are_warned_of(net: tuple[nn.Module, list[Tensor], Any]) -> None:
    model, images, _ = net
    shapes = ({2: torch.export.Dim("height", min=4)},)
    quantized = quantize(model, images, dynamic_shapes=shapes)
    with pytest.warns(QuantizationWarning, match="since their sizes are dynamic: conv2d, .*with static sizes"):
        lowered = lower(quantized, images[0], output_type="linalg-on-tensors", dynamic_shapes=shapes)
    for x in (images[0], images[0][:, :, :5]):
        assert ratio(lowered.run(x), model(x)) > 25


class Layers(nn.Module):
    """Layers with an integer form for a dynamic batch: strided, depthwise and grouped convolutions, norms, pools."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.depthwise, self.grouped = (
            nn.Conv2d(2, 4, 3, stride=2, padding=1),
            nn.Conv2d(4, 4, 3, padding=1, groups=4),
            nn.Conv2d(4, 4, 1, groups=2),
        )
        self.up, self.norm, self.wide, self.head = (
            nn.ConvTranspose2d(4, 4, 2, stride=2),
            nn.GroupNorm(2, 4),
            nn.LayerNorm(4),
            nn.Linear(4, 3),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.norm(nn.functional.gelu(self.depthwise(self.conv(x))))
        pooled = nn.functional.max_pool2d(self.up(x), 3, 2, 1) + nn.functional.avg_pool2d(self.grouped(x), 1)
        wide = nn.functional.interpolate(pooled, scale_factor=2.0).flatten(2)
        tokens = self.wide(wide.transpose(1, 2))
        return self.head(tokens).softmax(-1), tokens @ wide, wide.mean(2)


@pytest.mark.slow
@pytest.mark.parametrize("output_type", [*ENGINES])
def test_dynamic_batches_are_integer_bit_for_bit(output_type: str) -> None:
    torch.manual_seed(0)
    batch = ({0: torch.export.Dim("batch", max=16)},)
    inputs = [torch.randn(2, 2, 5, 5) for _ in range(3)]
    quantized = quantize(Layers().eval(), inputs, dynamic_shapes=batch)
    options: dict[str, Any] = {"output_type": output_type, "quantized": "integer"}
    dynamic = lower(quantized, inputs[0], dynamic_shapes=batch, **options)
    x = torch.cat(inputs)[:5]
    static = lower(quantized, x, **options)
    assert dynamic.trace.stages[0].remarks == static.trace.stages[0].remarks
    assert all(map(torch.equal, dynamic.run(x), static.run(x)))


def test_dynamic_length_of_linear_layers() -> None:
    """The example's size became the only one: integer operators had no rule for fake tensors."""
    torch.manual_seed(0)
    rows = torch.export.Dim("rows", max=64)
    model, inputs = nn.Sequential(nn.Linear(4, 4), nn.GELU()).eval(), [torch.randn(1, 2, 4) for _ in range(9)]
    quantized = quantize(model, inputs, dynamic_shapes=({1: rows},))
    lowered = lower(quantized, inputs[0], output_type="linalg-on-tensors", dynamic_shapes=({1: rows},))
    x = torch.cat(inputs[:2], 1)[:, :3]
    assert lowered.trace.stages[0].remarks[0].startswith("quantized: 2 of 2 operators are integer")
    assert lowered.run(x).shape == (1, 3, 4)
    assert ratio(lowered.run(x), model(x)) > 20


def test_without_a_word_where_nothing_is_quantized(net: tuple[nn.Module, list[Tensor], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered = lower(net[0], net[1][0], output_type="linalg-on-tensors")
    assert lowered.trace.stages[0].remarks == []
    assert lowered.options.export.quantized is Quantized.AUTO


def test_cached_and_saved(
    net: tuple[nn.Module, list[Tensor], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FX_IMPORTER_CACHE_DIR", str(tmp_path))
    x, quantized = net[1][0], net[2]
    first, again = (lower(quantized, x, output_type="linalg-on-tensors", cache=True) for _ in range(2))
    assert again.trace.stages[-1].remarks[-1].startswith("taken")
    assert is_integer(again)
    assert torch.equal(first.run(x), again.run(x))
    assert again.verify(x, backends=["jit"])


def test_torch_compile_has_the_numbers_of_eager(net: tuple[nn.Module, list[Tensor], Any]) -> None:
    x, quantized = net[1][0], net[2]
    compiled = torch.compile(quantized, backend="fx_importer")
    torch.testing.assert_close(compiled(x), quantized(x), rtol=0, atol=0)


def test_explain_follows(net: tuple[nn.Module, list[Tensor], Any]) -> None:
    assert explain(net[2], net[1][0], output_types=["tosa"])
