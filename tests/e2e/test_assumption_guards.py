"""Calls that violate an assumption end with an error where its check is read last: what it guards is safe before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer import lower
from fx_importer.errors import AssumptionError

X, FAR = torch.arange(12.0).reshape(4, 3), 10**9


def checked(indices: Tensor) -> Tensor:
    assert (indices < 4).all()
    return indices


def reads(x: Tensor, i: Tensor) -> Tensor:
    return x[checked(i)] * 2


def reads_elements(x: Tensor, i: Tensor) -> Tensor:
    return x.gather(0, checked(i).unsqueeze(1))


def embeds(x: Tensor, i: Tensor) -> Tensor:
    return F.embedding(checked(i), x)


def writes(x: Tensor, i: Tensor) -> Tensor:
    return x.index_put((checked(i),), torch.ones(3, 3))


def adds(x: Tensor, i: Tensor) -> Tensor:
    return x.scatter_add(0, checked(i).unsqueeze(1), torch.ones(3, 1))


def divides(x: Tensor, i: Tensor) -> Tensor:
    return torch.div(torch.full((3,), 12, dtype=torch.int32), (checked(i) < 4).int(), rounding_mode="trunc")


ENGINES = [
    ("tosa", "tosa_reference", reads_elements),
    ("tosa", "tosa_reference", divides),
    ("tosa", "iree", reads),
    ("tosa", "jit", embeds),
    ("stablehlo", "iree", reads),
    ("stablehlo", "iree", writes),
    ("stablehlo", "iree", adds),
    ("stablehlo", "stablehlo", divides),
    ("stablehlo", "xla", writes),
]


@pytest.mark.slow_rows("^(stablehlo-iree-reads|stablehlo-iree-adds|tosa-iree-reads)$")
@pytest.mark.parametrize(("output_type", "engine", "program"), ENGINES)
def test_code_after_a_violated_check_is_safe(output_type: str, engine: str, program: Callable[..., Any]) -> None:
    inputs = (X, torch.tensor([0, 2, 1]))
    lowered = lower(program, *inputs, output_type=output_type, capture="assume", narrow_integers=output_type == "tosa")
    caller = lowered.caller(backend=engine)
    assert torch.equal(caller(*inputs), program(*inputs))
    with pytest.raises(AssumptionError):
        caller(X, torch.tensor([0, 2, FAR]))


def test_indices_of_dynamic_sizes() -> None:
    shapes = ({0: torch.export.Dim("n", min=4)}, {0: torch.export.Dim("m", min=2)})
    inputs = (X, torch.tensor([0, 2, 1]))
    lowered = lower(reads, *inputs, output_type="stablehlo", dynamic_shapes=shapes, capture="assume")
    caller = lowered.caller(backend="iree")
    assert torch.equal(caller(X, torch.tensor([3, 1])), reads(X, torch.tensor([3, 1])))
    with pytest.raises(AssumptionError):
        caller(X, torch.tensor([0, FAR]))


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = torch.nn.Embedding(4, 3), torch.nn.Linear(3, 3)

    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        x = x + self.table(i)
        for _ in range(4):
            x = torch.tanh(self.linear(x)).relu() + x
        return x


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(), Layer()])

    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        checked(i)
        for layer in self.layers:
            x = layer(x, i)
        return x


def test_outlined_layers_take_the_check() -> None:
    model, inputs = Layers().eval(), (X[:3], torch.tensor([0, 2, 1]))
    options = {"outline_layers": True, "capture": "assume", "narrow_integers": True}
    lowered = lower(model, *inputs, output_type="tosa", **options)
    assert "call @" in str(lowered.module)
    caller = lowered.caller(backend="jit")
    torch.testing.assert_close(caller(*inputs), model(*inputs))
    with pytest.raises(AssumptionError):
        caller(X[:3], torch.tensor([0, 2, FAR]))


@pytest.mark.slow_rows("linalg", "tosa")
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_ranges_up_to_an_item_of_known_number(output_type: str) -> None:
    def masked(x: Tensor, lengths: Tensor) -> Tensor:
        positions = torch.arange(0, lengths.max().item(), dtype=lengths.dtype)
        return x.masked_fill(positions >= lengths[:, None], 0)

    lowered = lower(masked, X, torch.tensor([3, 1, 0, 2]), output_type=output_type, capture="assume")
    caller, lengths = lowered.caller(backend="jit"), torch.tensor([0, 0, 3, 1])
    torch.testing.assert_close(caller(X, lengths), masked(X, lengths))
    with pytest.raises(AssumptionError, match="is 3|>= 3"):
        caller(X, torch.tensor([2, 1, 0, 2]))
