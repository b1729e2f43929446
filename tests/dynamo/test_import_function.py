"""`import_function`: functions with graph breaks, run graph by graph with Python between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_importer import ExportError, StageFailed, UnsupportedProgramError, UsageError, lower
from fx_importer.dynamo import import_function

# from torch, for a value between two graphs
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def branches(x: Tensor, y: Tensor) -> Tensor:
    z = x @ y
    if z.sum() > 0:
        return (z * 2).tanh()
    return z - 1


class Printing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2))
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        print("halfway")
        assert isinstance(self.calls, Tensor)
        self.calls += 1
        return self.last(hidden) + self.calls


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_data_dependent_branch(output_type: str) -> None:
    x, y = torch.ones(2, 3), torch.arange(12.0).reshape(3, 4)
    with pytest.raises(ExportError):
        lower(branches, x, y, capture="export")
    found = import_function(branches, x, y, output_type=output_type)
    torch.testing.assert_close(found.result, branches(x, y))
    positive, z = found.graphs[0].caller(backend="jit")(x, y)
    assert positive
    (result,) = found.graphs[1].caller(backend="jit")(z)
    torch.testing.assert_close(result, branches(x, y))
    assert [[argument.name for argument in each.manifest.functions["main"].arguments] for each in found.graphs] == [
        ["x", "y"],
        ["z"],
    ]
    line = branches.__code__.co_firstlineno + 2
    assert str(found) == (
        f"2 graphs of {output_type}, 1 break\n"
        "  graph 0: 3 operations, 2 arguments, 2 results\n"
        "  graph 1: 2 operations, 1 argument, 1 result\n"
        "  break 0: a branch depends on the value of a tensor\n"
        f"    at {Path(__file__)}:{line}: if z.sum() > 0:"
    )


def test_weights_and_state_keep_their_names() -> None:
    model, x = Printing(), torch.ones(5, 3)
    found = import_function(model, x, output_type="linalg", mutation="functional")
    first, second = (each.manifest for each in found.graphs)
    assert list(first.constants) == ["first.weight", "first.bias"]
    assert list(second.constants) == ["last.0.weight", "last.0.bias"]
    assert list(second.state) == ["calls"]
    (hidden,) = found.graphs[0].run(x)
    caller = found.graphs[1].caller({"calls": torch.ones(2)})
    torch.testing.assert_close(caller(hidden)[0], model.last(hidden) + 2)
    torch.testing.assert_close(caller.state["calls"], torch.full((2,), 2.0))
    assert found.breaks[0].source == 'print("halfway")'


def test_mutated_state_is_an_error_by_default() -> None:
    with pytest.raises(UnsupportedProgramError, match="the buffer 'calls'"):
        import_function(Printing(), torch.ones(5, 3), output_type="linalg")


def test_symbolic_sizes_and_scalars() -> None:
    def scaled(x: Tensor, n: int) -> Any:
        return x.cumsum(0) * n, x.shape[0]

    found = import_function(scaled, torch.ones(3, 2), 4, output_type="linalg", dynamic=True)
    assert "tensor<?x" in str(found.graphs[0].module)
    x = torch.randn(5, 2)
    torch.testing.assert_close(found.graphs[0].run(x, 7)[0], x.cumsum(0) * 7)
    assert not found.breaks


def test_function_without_a_graph() -> None:
    found = import_function(lambda x: x, 3)
    assert found.result == 3
    assert str(found) == "0 graphs, 0 breaks"


def test_lowering_error_names_the_line() -> None:
    def doubles(x: Tensor) -> Tensor:
        return x.double().atan2(x)

    with pytest.raises(StageFailed) as caught:
        import_function(doubles, torch.ones(3), output_type="tosa")
    assert f"{Path(__file__)}:{doubles.__code__.co_firstlineno + 1}" in str(caught.value)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"dynamic_shapes": {}}, "no option 'dynamic_shapes': accepted are 'dynamic' (for symbolic sizes)"),
        ({"output_type": "llvm"}, "unknown output type 'llvm'"),
    ],
)
def test_invalid_options_are_reported_before_the_function_runs(options: Any, expected: str) -> None:
    ran: list[Tensor] = []
    with pytest.raises(UsageError) as caught:
        import_function(ran.append, torch.ones(3), **options)
    assert expected in str(caught.value)
    assert not ran
    with pytest.raises(UsageError, match="expected a function or an nn.Module, not int"):
        import_function(3)  # pyright: ignore[reportArgumentType]


def test_function_imported_repeatedly():
    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    found = [import_function(broken, torch.ones(2)) for _ in range(10)]  # more than Dynamo's recompile limit
    assert [(len(each.graphs), len(each.breaks)) for each in found] == [(2, 1)] * 10
