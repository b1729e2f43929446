"""`accuracy` and ``fx-importer quantize``: the worst layer is found, and leaving it in floating point helps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fx_importer import UsageError, accuracy, lower, quantize
from fx_importer.cli.commands.quantize import quantize_model


class Net(nn.Module):
    """A convolution, a function of large range whose small values matter, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.exp(3 * self.body(x)).mean((2, 3)).log())


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


def images() -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(1, 3, 8, 8) for _ in range(2)]


def test_worst_layers(model: nn.Module) -> None:
    inputs = images()
    found = accuracy(model, quantize(model, inputs, integer_io=True), inputs, tries=2)
    assert found.worst(2) == ("mean", "exp")
    assert {each.name: each.module for each in found.layers}["relu"] == "body.2"
    assert found.layers[0].alone < 25 < found.layers[-1].alone
    assert {each.steps for each in found.layers} <= {0, 1}
    assert list(found.tried) == [("mean",), ("mean", "exp")]
    assert found.tried["mean", "exp"] > found.result + 10
    said = str(found)
    assert "integer operators: 5, each alone at most" in said
    assert "in floating point, mean, exp: results" in said


@pytest.mark.slow
def test_layers_in_floating_point(model: nn.Module) -> None:
    inputs = images()
    lowered = lower(quantize(model, inputs, keep_float=["head"]), inputs[0], output_type="linalg", quantized="integer")
    assert [each for each in lowered.trace.stages[0].remarks if "linear" in each]
    with pytest.raises(UsageError, match="no value and no module named 'heat'; did you mean 'head'"):
        quantize(model, inputs, keep_float=["heat"])
    other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Softsign())
    with pytest.raises(UsageError, match="is it the model that was quantized"):
        accuracy(nn.Softsign(), quantize(other, [torch.randn(1, 3)]), [torch.ones(2, 3)])


def test_command(model: nn.Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, saved = tmp_path / "net.pt2", tmp_path / "quantized.pt2"
    torch.export.save(torch.export.export(model, (images()[0],)), file)
    quantize_model(str(file), saved, None, True, (), "int8", 0)
    assert "dB signal to noise relative to the float model" in capsys.readouterr().out
    program = torch.export.load(saved)
    assert program.example_inputs is not None
    x = program.example_inputs[0][0]
    assert x.dtype is torch.int8
    lowered = lower(program, output_type="linalg", quantized="integer")
    assert lowered.verify(x, backends=["jit"], rtol=0, atol=1e-5)
    with pytest.raises(UsageError, match="the model is quantized: lower it with --quantized integer"):
        quantize_model(str(saved), None, None, False, (), "int8", 0)
