"""`import_function`: functions with graph breaks, as functions of one module with Python between them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fx_importer import ExportError, StageFailed, UnsupportedProgramError, UsageError, lower
from fx_importer.dynamo import import_function
from fx_importer.engines import JitBackend
from fx_importer.errors import SpecializedNumberWarning
from fx_importer.manifest import Manifest

# from torch, for a value between two graphs
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore::fx_importer.errors.SpecializedNumberWarning"),
]


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
        f"    at {Path(__file__)}:{line}: if z.sum() > 0:\n"
        "    try: torch.where, or torch.cond (docs/control-flow.md); "
        "for a check that raises, `assert condition, 'text'`"
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

    with torch._dynamo.config.patch(recompile_limit=2):
        found = [import_function(broken, torch.ones(2)) for _ in range(4)]
    assert [(len(each.captured), len(each.breaks)) for each in found] == [(2, 1)] * 4


def test_graphs_are_functions_of_one_module_with_the_breaks_in_its_manifest(capsys: Any) -> None:
    model, x = Printing(), torch.ones(5, 3)
    imported = import_function(model, x, output_type="linalg", mutation="functional")
    lowered = imported.lowered
    assert lowered is not None
    manifest = Manifest.from_json(lowered.manifest.to_json())
    assert list(manifest.functions) == ["graph_0", "graph_1"]
    assert manifest.graph_breaks == imported.breaks
    (graph_break,) = manifest.graph_breaks
    assert (graph_break.after, graph_break.before) == ("graph_0", "graph_1")
    assert (graph_break.message, graph_break.source) == ("Python calls print", 'print("halfway")')
    capsys.readouterr()
    assert lowered.verify(backends=["jit"])
    verdict = imported.verify()
    assert verdict, verdict
    assert [check.function for check in verdict.checks] == ["graph_0", "graph_1", "Printing"]
    assert "state 'calls'" in [output.name for output in verdict.checks[-1].outputs]
    assert capsys.readouterr().out == "halfway\n" * 2  # eager, and with the functions
    torch.testing.assert_close(model.calls, torch.ones(2))  # of the import; verify calls copies


def test_verify_finds_a_wrong_function() -> None:
    imported = import_function(branches, torch.ones(2, 3), torch.ones(3, 4), output_type="linalg")
    assert imported.lowered is not None

    class Wrong(JitBackend):
        name = "wrong"

        def load(self, module: Any, func_name: str = "main") -> Any:
            function = super().load(module, func_name)
            return lambda *inputs: tuple(each + 0.5 if each.is_floating_point() else each for each in function(*inputs))

    verdict = imported.verify(backends=[Wrong()])
    assert [(check.function, check.status.value) for check in verdict.checks] == [
        ("graph_0", "mismatch"),
        ("graph_1", "mismatch"),
        ("branches", "mismatch"),
    ]


def test_verify_of_another_path_reports_it() -> None:
    imported = import_function(branches, torch.ones(2, 3), torch.ones(3, 4), output_type="linalg")
    verdict = imported.verify(-torch.ones(2, 3), torch.ones(3, 4))
    assert not verdict
    assert "the call takes another path than the import: 1 of its graphs are not lowered" in str(verdict)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        padded, _ = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)
        return self.last(padded)


class Initialized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.mean: Tensor
        self.register_buffer("ready", torch.tensor(False))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if not self.ready:
            self.mean.copy_(y.detach().mean(0))
            self.ready.fill_(True)
        return y - self.mean


class Replaced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = self.mean * 0.9 + x.mean(0)
        torch._dynamo.graph_break()
        return x - self.mean


class Swapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.double()
        z = self.layer(y.double())
        self.float()
        return z.float() + self.layer(y)


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.memory, self.calls = nn.Linear(3, 3), None, 0

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        torch._dynamo.graph_break()
        self.memory = y if self.memory is None else self.memory + y
        self.calls += 1
        return self.memory * self.calls


class Forces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.layer(x.sin()).sum(), x)
        return -gradient


class WritesViews(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        torch._dynamo.graph_break()
        h[:, 0] += 1
        h.view(-1)[2:4].mul_(2)
        return h.relu_()


def writes_aliases(x: Tensor) -> Tensor:
    h = x.sin()
    left, right = h.chunk(2, -1)
    flat = h.view(-1)
    torch._dynamo.graph_break()
    left.mul_(2)
    right.add_(left)
    flat[0] = 7
    return h


def loops(x: Tensor) -> tuple[Tensor, int]:
    steps = 0
    while x.abs().max() > 0.1:
        x, steps = x * 0.5, steps + 1
    return x, steps


def uses_distribution(x: Tensor) -> Tensor:
    return torch.distributions.Normal(x, x.exp(), validate_args=True).log_prob(torch.zeros(3))


def calls_numpy(x: Tensor) -> Tensor:
    return x.sin() * np.median(x.cos().numpy()).item()


def iterates(x: Tensor) -> Tensor:
    factors = iter([1.0, 2.0])
    y = x.sin()
    torch._dynamo.graph_break()
    while True:
        try:
            y = y * next(factors)
        except StopIteration:
            return y.cos()


def differentiates(x: Tensor) -> Tensor:
    return torch.func.jvp(lambda y: torch.func.jvp(lambda z: z * z.sin(), (y,), (y,))[1], (x,), (x,))[1]


def uses_a_thread(x: Tensor) -> Tensor:
    results: list[Tensor] = []
    thread = threading.Thread(target=lambda: results.append(x.sin()))
    thread.start()
    thread.join()
    return results[0].cos()


def logs(x: Tensor) -> Tensor:
    y = x.sin()
    logging.getLogger("model").debug("halfway")
    return y.cos()


@pytest.mark.slow_rows("^(views|remembering|iterators|loops|logging)$")
@pytest.mark.parametrize(
    "build, inputs, functions, messages",
    [
        (Recurrent, (torch.ones(2, 3, 3), torch.tensor([3, 2])), 1, ["pack_padded_sequence makes sizes of the values"]),
        (Initialized, (torch.ones(2, 3),), 2, ["a branch depends on the value of a tensor"]),
        (Replaced, (torch.ones(2, 3),), 2, ["the model calls torch._dynamo.graph_break()"]),
        (Swapped, (torch.ones(2, 3),), 3, ["the call makes a parameter, or replaces the values of one"]),
        (Remembering, (torch.ones(2, 3),), 2, ["the model calls"]),
        (
            Forces,
            (torch.ones(2, 3),),
            3,
            ["a tensor that requires gradients", "autograd computes gradients, in Python"],
        ),
        (WritesViews, (torch.ones(2, 3),), 2, ["the model calls"]),
        (lambda: writes_aliases, (torch.ones(2, 4),), 2, ["the model calls"]),
        (lambda: loops, (torch.ones(3),), 3, ["a branch depends on the value of a tensor"]),
        (lambda: uses_distribution, (torch.ones(3),), 2, ["torch.distributions validates its arguments in Python"]),
        (lambda: calls_numpy, (torch.ones(3),), 2, ["Python reads a number from a tensor"]),
        (lambda: iterates, (torch.ones(3),), 2, ["the model calls"]),
        (lambda: differentiates, (torch.ones(3),), 1, []),
        (lambda: uses_a_thread, (torch.ones(3),), 1, ["Python calls the builtin _thread.get_ident"]),
        (lambda: logs, (torch.ones(3),), 2, ["Python writes a log"]),
    ],
    ids=[
        *("packed", "initialized", "replaced", "swapped", "remembering", "forces", "views", "aliases", "loops"),
        *("distribution", "numpy", "iterators", "nested_jvp", "threads", "logging"),
    ],
)
def test_whole_call_equals_eager(build: Any, inputs: Any, functions: int, messages: list[str]) -> None:
    torch.manual_seed(0)
    imported = import_function(build(), *inputs, output_type="linalg", mutation="functional")
    assert len(imported.captured) == functions
    assert len(imported.breaks) >= len(messages)
    for graph_break, message in zip(imported.breaks, messages, strict=False):
        assert graph_break.message.startswith(message)
        assert (graph_break.where or "").startswith(f"{__file__}:")
    verdict = imported.verify()
    assert verdict, verdict


def scales(x: Tensor, n: int) -> Tensor:
    return x.sin() * (x.cos().sum().item() * n)


def test_numbers_that_functions_hold_are_a_warning_and_in_the_manifest() -> None:
    with pytest.warns(SpecializedNumberWarning, match="graph_1 n == 2, graph_1 a number read in Python == 3.0"):
        imported = import_function(scales, torch.zeros(3), 2, output_type="linalg")
    assert imported.lowered is not None
    manifest = Manifest.from_json(imported.lowered.manifest.to_json())
    assert manifest.specialized == {"graph_1": {"___stack1": 3.0, "n": 2}}
    assert "only for graph_1 n == 2, graph_1 a number read in Python == 3.0" in str(imported)

    with pytest.warns(SpecializedNumberWarning, match="graph_1 self.calls == 0"):
        import_function(Remembering(), torch.ones(2, 3), output_type="linalg")


def test_numbers_are_arguments_with_dynamic_sizes() -> None:
    imported = import_function(scales, torch.zeros(3), 2, output_type="linalg", dynamic=True)
    assert imported.lowered is not None
    assert imported.lowered.manifest.specialized == {}
    assert imported.verify()
    assert imported.verify(torch.rand(4), 5)


def test_written_values_of_the_call_need_no_option() -> None:
    imported = import_function(WritesViews(), torch.ones(2, 3), output_type="tosa")
    assert imported.lowered is not None
    assert len(imported.lowered.manifest.functions["graph_1"].results) == 2  # what the graph returns, and what it wrote


def test_memory_shared_by_dynamic_sizes_is_an_error() -> None:
    with pytest.raises(UnsupportedProgramError, match="writes_aliases, graph_1 writes to memory that .*'h'.* share"):
        import_function(writes_aliases, torch.ones(2, 4), output_type="linalg", dynamic=True)


def test_operators_that_python_runs_are_listed() -> None:
    class Halting(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            y = super().forward(input)
            torch._dynamo.graph_break()
            return y.tanh()

    model = nn.Sequential(Halting(3, 3), nn.Linear(3, 2))
    imported = import_function(model, torch.ones(2, 3), output_type="linalg")
    assert imported.breaks[-1].operators == ("aten.t.default", "aten.addmm.default")
    assert "PyTorch runs aten.t.default, aten.addmm.default" in str(imported)


NAMESPACE: dict[str, Any] = {}
exec("def asserts(y): assert (y <= 2).all(), 'too large'", NAMESPACE)  # pytest rewrites assertions of this file
asserts = NAMESPACE["asserts"]


def checked(x: Tensor, how: str) -> Any:
    """Compute something with a graph break, or without it as the report of the break suggests."""
    y = x.sin()
    match how:
        case "print":
            print("halfway")
        case "print when eager":
            if not torch.compiler.is_compiling():
                print("halfway")
        case "raise":
            if (y > 2).any():
                raise ValueError("too large")
        case "assert":
            asserts(y)
        case "branch":
            y = y * 2 if y.sum() > 0 else y
        case "where":
            y = torch.where(y.sum() > 0, y * 2, y)
        case "equal":
            y = y * 2 if torch.equal(x, y) else y
        case "all":
            y = torch.where((x == y).all(), y * 2, y)
        case "validated":
            y = torch.distributions.Normal(y, x, validate_args=True).log_prob(x)
        case "not validated":
            y = torch.distributions.Normal(y, x, validate_args=False).log_prob(x)
        case "autograd":
            leaf = y.detach().requires_grad_()
            y = torch.autograd.grad(leaf.cos().sum(), leaf)[0]
        case "func.grad":
            y = torch.func.grad(lambda z: z.cos().sum())(y)
    return y.cos()


@pytest.mark.slow_rows("^(validated|equal|print)-")
@pytest.mark.parametrize(
    "broken, remedied, remedy",
    [
        ("print", "print when eager", "make it under `if not torch.compiler.is_compiling():`"),
        ("raise", "assert", "for a check that raises, `assert condition, 'text'`"),
        ("branch", "where", "torch.where"),
        ("equal", "all", "(x == y).all(), with torch.where"),
        ("validated", "not validated", "validate_args=False"),
        ("autograd", "func.grad", "torch.func.grad"),
    ],
)
def test_remedies_remove_the_break(broken: str, remedied: str, remedy: str) -> None:
    x = torch.full((3,), 0.5)
    assert remedy in import_function(checked, x, broken).breaks[-1].remedy
    imported = import_function(checked, x, remedied)
    assert (len(imported.captured), imported.breaks) == (1, ())


def test_errors_name_the_function_and_leave_no_transform_active() -> None:
    def nested(x: Tensor) -> Tensor:
        gradient = torch.func.grad(lambda z: z.sin().sum())
        return torch.func.jvp(lambda y: torch.func.jvp(gradient, (y,), (y,))[1], (x,), (x,))[1]

    def twice(x: Tensor) -> Tensor:
        ones = torch.ones_like(x)
        return torch.func.jvp(lambda y: torch.func.jvp(lambda z: (z.sin() * z).sum(), (y,), (ones,))[1], (x,), (ones,))[
            1
        ]

    with pytest.raises(ExportError, match="TorchDynamo cannot trace nested") as caught:
        import_function(nested, torch.ones(3))
    assert "A gradient (torch.func.grad) in two forward-mode derivatives is not supported" in str(caught.value)
    assert f"{__file__}:{nested.__code__.co_firstlineno + 2}" in str(caught.value)
    assert import_function(iterates, torch.ones(3)).captured  # TorchDynamo would leave all to Python


def test_errors_of_export_name_the_graph_of_the_users_class(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("refused")

    monkeypatch.setattr(torch.export, "export", refuse)
    with pytest.raises(ExportError, match="torch.export cannot capture Printing, graph_0"):
        import_function(Printing(), torch.ones(5, 3))
