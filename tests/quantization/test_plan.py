"""What a float program is to be quantized at: values, shared scales, weights; and calibration inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fx_importer import UsageError
from fx_importer.quantization.normalization.normalize import normalize
from fx_importer.quantization.post_training.calibration import calls_of, check_like_first
from fx_importer.quantization.post_training.plan import planned


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(8, 5)
        self.offset = nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.conv(x))  # one operator
        z = torch.tanh(y * 2 + 1)  # one table
        y = torch.cat([F.max_pool2d(y, 2), torch.softmax(F.max_pool2d(z + self.offset, 2), 1)], 1)
        return self.linear(y.mean((2, 3)))


def groups(excluded: tuple[str, ...] = ()) -> tuple[dict[str, str], Any]:
    graph = torch.export.export(Net(), (torch.randn(1, 3, 8, 8),)).module().graph
    plan = planned(graph, excluded)
    return {each.name: root.name for each, root in plan.groups.items()}, plan


def test_values_of_a_network() -> None:
    found, plan = groups()
    assert "conv2d" not in found
    assert "mul" not in found
    assert "add" not in found
    assert found["max_pool2d"] == found["relu"]
    assert found["max_pool2d_1"] == found["add_1"] == "add_1"
    assert found["cat"] == "relu"
    assert found["softmax"] == "softmax"  # its range is known: it is rescaled for the concatenation
    assert {each.name: scale for each, scale in plan.fixed.items()} == {
        "tanh": (1 / 128, 0),
        "softmax": (1 / 256, -128),
    }
    assert {each.name: [one.name for one in many] for each, many in plan.constants.items() if many} == {
        "add_1": ["offset"]
    }
    assert {each.name: weight.name for each, weight in plan.weights.items()} == {
        "conv2d": "conv_weight",
        "linear": "linear_weight",
    }
    assert found["linear"] == "linear"


def test_values_that_no_int8_holds() -> None:
    found, _ = groups(("add_1",))
    assert "add_1" not in found
    assert found["max_pool2d"] == "relu"


X = torch.ones(2, 3)


@pytest.mark.parametrize(
    "calibration, said",
    [
        ([], "calibration has no inputs"),
        (X, "not a Tensor: pass \\[x\\]"),
        ([3], "calibration input 0 is a int, and no tensor"),
        ([X, (X / 0,)], "calibration input 1: argument \\[0\\] has values that are not finite"),
        ([{"x": [X * float("nan")]}], "argument 'x'\\[0\\] has values that are not finite"),
        ([X, X[:1]], "torch.float32 of shape \\(1, 3\\), and torch.float32 of shape \\(2, 3\\) in input 0"),
        ([X, X.int()], "torch.int32 of shape"),
        ([X, {"x": X}], "calibration input 1 has other arguments than input 0"),
    ],
)
def test_calibration_that_is_none(calibration: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_like_first(calls_of(calibration), dynamic=False)


def test_calibration_of_dynamic_sizes() -> None:
    check_like_first(calls_of([X, X[:1]]), dynamic=True)


@pytest.mark.filterwarnings("ignore:The tensor attributes")  # torch.export's, of recurrent layers
def test_steps_of_a_recurrent_layer_share_scales() -> None:
    program = torch.export.export(nn.LSTM(3, 4, batch_first=True).eval(), (torch.randn(2, 5, 3),))
    module = program.module(check_guards=False)
    normalize(module)
    groups = planned(module.graph).groups
    sums = [groups[each] for each in module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)]
    assert len(sums) == 10
    assert len(set(sums)) == 2  # the gates, and the state of the cell
