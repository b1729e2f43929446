"""Models and calibration that `quantize` refuses or warns of, and tensors whose one scale loses much of a part."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_importer import UsageError, lower, quantize
from fx_importer.cli import _format_warning
from fx_importer.cli.commands.quantize import quantize_model
from fx_importer.errors import QuantizationWarning

pytest.importorskip("torchao")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


class Head(nn.Module):
    """Predicts boxes of an image of ``size`` pixels, and their confidences."""

    def __init__(self, merge: Callable[[Tensor, Tensor], Any], size: float) -> None:
        super().__init__()
        self.conv, self.merge, self.size = nn.Conv2d(3, 4, 1), merge, size

    def forward(self, x: Tensor) -> Any:
        y = self.conv(x)
        return self.merge(y[:, :2].sigmoid() * self.size, y[:, 2:].sigmoid())


def images(shape: tuple[int, ...] = (1, 3, 4, 4)) -> list[Tensor]:
    return [torch.randn(shape) for _ in range(2)]


@pytest.mark.parametrize("activations", ["int8", "mixed"])
@pytest.mark.parametrize(
    "merge",
    [
        lambda boxes, scores: torch.cat([boxes, scores], 1),
        lambda boxes, scores: torch.stack([boxes, scores], 1),
        lambda boxes, scores: torch.cat([scores, boxes], 1).flatten(2).transpose(1, 2),
    ],
    ids=["cat", "stack", "moved"],
)
def test_one_scale_for_different_ranges(merge: Callable[[Tensor, Tensor], Any], activations: str) -> None:
    lost = r"(cat|stack) = .*test_checks.py:\d+.: one scale, 1.81.* of 'sigmoid_1' .0 to 0.703.: 56 dB become 0"
    with pytest.warns(QuantizationWarning, match=lost) as record:
        quantize(Head(merge, 640.0).eval(), images(), activations=activations)
    assert [warning.filename for warning in record] == [__file__]


@pytest.mark.parametrize(
    "merge, size, activations",
    [
        (lambda boxes, scores: (boxes, scores), 640.0, "int8"),
        (lambda boxes, scores: torch.cat([boxes, scores], 1), 1.0, "int8"),
        (lambda boxes, scores: torch.cat([boxes, scores], 1), 4.0, "int8"),
        (lambda boxes, scores: torch.cat([boxes, scores], 1), 640.0, "int16"),
        (lambda boxes, scores: torch.cat([boxes, torch.zeros_like(scores)], 1), 640.0, "int8"),
    ],
    ids=["apart", "same", "similar", "int16", "zeros"],
)
def test_no_warning_where_little_is_lost(merge: Callable[[Tensor, Tensor], Any], size: float, activations: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", QuantizationWarning)
        quantized = quantize(Head(merge, size).eval(), images(), activations=activations)
    assert not [name for name, _ in quantized.named_modules() if "operand_range" in name]


def test_range_of_all_calls() -> None:
    """The range of an operand covers all calibration inputs, also of a model with state."""

    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("past", torch.zeros(1, 3))
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.cat([self.linear(x), self.get_buffer("past") * 1000], 1)
            self.get_buffer("past").copy_(x)
            return y

    calls = [torch.randn(1, 3) for _ in range(3)]
    with pytest.warns(QuantizationWarning, match="cat = .* of 'linear' .*dB become"):
        quantize(Stateful().eval(), calls)


def quantized_model() -> tuple[Any, list[Tensor]]:
    return quantize(nn.Linear(3, 4), [torch.randn(2, 3)]), [torch.randn(2, 3)]


@pytest.mark.parametrize(
    "build, said",
    [
        (quantized_model, "takes a float model, and this one is quantized: it calls quantized_decomposed"),
        (lambda: (nn.Linear(3, 4).half(), [torch.randn(2, 3).half()]), "this one computes in torch.float16"),
        (lambda: (nn.Linear(3, 4).double(), [torch.randn(2, 3).double()]), "this one computes in torch.float64"),
        (
            lambda: (torch.export.export(nn.Linear(3, 4), (torch.randn(2, 3),)), [torch.randn(5, 3)]),
            r"calibration input 0: 'input' is torch.float32 of shape \(5, 3\), and .* of shape \(2, 3\)",
        ),
        (
            lambda: (torch.export.export(nn.Linear(3, 4), (torch.randn(2, 3),)), [(torch.randn(2, 3), 1)]),
            "calibration input 0 has 2 values, and the model takes 1",
        ),
    ],
    ids=["quantized", "half", "double", "size", "count"],
)
def test_refused(build: Callable[[], tuple[Any, list[Any]]], said: str) -> None:
    model, calls = build()
    with pytest.raises(UsageError, match=said):
        quantize(model, calls)


class Running(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1)


class Stream(nn.Module):
    """Adds the values of former calls that are above 5."""

    past: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("past", torch.zeros(1, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.past
        self.past.copy_(torch.relu(x - 5))
        return y


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.gain = nn.Linear(3, 4), nn.Parameter(torch.ones(4, dtype=torch.float16))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.gain.float()


@pytest.mark.parametrize(
    "model, calls, said",
    [
        (nn.Linear(3, 4), [torch.zeros(2, 3)], "all elements of 'input' are 0, and other values will be beyond"),
        (nn.Linear(3, 4), [torch.full((2, 3), 0.5)] * 2, "all elements of 'input' are 0.5"),
        (Running(), [torch.randn(2, 3)], "changed nothing: no operator .* has an integer form.*cumsum"),
        (Stream(), [torch.rand(1, 3)] * 2, r"buffer 'past', .* 0 in all elements whenever add = .*test_checks.py:\d+"),
        (Mixed(), [torch.randn(2, 3)], "'gain' is torch.float16, and operators on it stay in floating point"),
    ],
    ids=["zeros", "constant", "nothing", "state", "half"],
)
def test_warned_of(model: nn.Module, calls: list[Tensor], said: str) -> None:
    with pytest.warns(QuantizationWarning, match=said) as record:
        quantize(model.eval(), calls)
    assert record[0].filename == __file__


class Shift(nn.Module):
    """Adds 1 to the rows with a positive first element."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        y[x[:, 0] > 0] += 1
        return self.linear(y)


def test_values_without_elements_stay_float() -> None:
    model, x = Shift().eval(), torch.randn(5, 4)
    with pytest.warns(QuantizationWarning, match=r"add = .*test_checks.py.* no elements in any call"):
        quantized = quantize(model, [-x.abs()])
    calibrated = quantize(model, [x])
    assert not any(node.args[1:3] == (1.0, 0) for node in quantized.graph.nodes if "quantize" in str(node.target))
    for arithmetic in ("integer", "float"):
        lowered = lower(calibrated, x, output_type="tosa", quantized=arithmetic)
        torch.testing.assert_close(lowered.run(x), model(x), rtol=0, atol=0.1)


def test_command_shows_warnings(tmp_path: Path) -> None:
    file = tmp_path / "linear.pt2"
    torch.export.save(torch.export.export(nn.Linear(3, 4), (torch.zeros(1, 3),)), file)
    with pytest.warns(QuantizationWarning) as record:
        quantize_model(str(file), None, None, False, (), "int8", 0)
    (shown,) = [warning for warning in record if warning.category is QuantizationWarning]
    text = _format_warning(shown.message, shown.category, shown.filename, shown.lineno)
    assert text.startswith("warning: calibration: all elements of 'input' are 0")


@pytest.mark.parametrize("name", ["a\nb", 'a"b', "a\\b"], ids=["newline", "quote", "backslash"])
def test_names_that_torch_fx_cannot_quote_are_refused(name: str) -> None:
    model = nn.Sequential()
    model.add_module(name, nn.Linear(2, 2))
    with pytest.raises(UsageError, match="cannot name .* in the code of torch.fx: rename the module"):
        quantize(model.eval(), [torch.ones(1, 2)])


def test_weights_without_values_are_refused():
    freed = nn.Linear(4, 4).eval()
    freed.weight.untyped_storage().resize_(0)
    with pytest.raises(UsageError, match="'weight', and it has no memory"):
        quantize(freed, [torch.randn(2, 4)])
