"""Outlined operators: PyTorch runs what an output type does not support, the rest is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.library import custom_op

from fx_importer import Manifest, StageFailed, UnsupportedProgramError, UsageError, lower
from fx_importer.calls.caller import Caller
from fx_importer.engines import JitBackend
from fx_importer.manifest import Passed

Tensor = torch.Tensor
BACKEND_TYPES = ("linalg-on-tensors", "tosa", "stablehlo")


@custom_op("outlining::scaled", mutates_args=())
def scaled(
    x: Tensor, scale: float = 2.0, axes: list[int] | None = None, other: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    y = (x * scale).to(x.dtype) if other is None else x * scale + other
    return y, y.sum(axes if axes is not None else [0])


@scaled.register_fake
def _(x: Tensor, scale: float = 2.0, axes: list[int] | None = None, other: Tensor | None = None) -> Any:
    return torch.empty_like(x), x.sum(axes if axes is not None else [0])


@custom_op("outlining::parts", mutates_args=())
def parts(x: Tensor, count: int, others: list[Tensor]) -> list[Tensor]:
    return [each + others[-1] for each in x.chunk(count)]


@parts.register_fake
def _(x: Tensor, count: int, others: list[Tensor]) -> list[Tensor]:
    return [torch.empty_like(each) for each in x.chunk(count)]


@custom_op("outlining::squares", mutates_args=())
def squares(x: Tensor) -> tuple[Tensor, Tensor]:
    """Inspects its input's dtype: the root of an unsigned or complex number is another."""
    return x * x, x.to(torch.complex64).sqrt()


@squares.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.complex64)


@custom_op("outlining::filled", mutates_args=())
def filled(x: Tensor, number: int) -> Tensor:
    return torch.full_like(x, number)


@filled.register_fake
def _(x: Tensor, number: int) -> Tensor:
    return torch.empty_like(x)


@custom_op("outlining::failing", mutates_args=())
def failing(x: Tensor) -> Tensor:
    if x.sum() > 100:
        raise KeyError("no such luck")
    return x[: int(x[0])] + 1


@failing.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Several(torch.nn.Module):
    """Calls one operator in three ways, one of them twice."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = scaled(torch.relu(x), 3.0, [1])
        c, _ = scaled(a, 3.0, [1], torch.tanh(x))
        d, _ = scaled(c, 4.0)
        e, f = scaled(torch.relu(d), 3.0, [1])
        return e + 1, f + b


class Weights(torch.nn.Module):
    """Passes a parameter in a list, and uses two of three results of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0))
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        first, _, last = parts(x, 3, [x[0], self.weight])
        return first * last + 1


class Branch(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: scaled(x, 3.0)[0] + 1, lambda x: scaled(x, 5.0)[0], (x,))


class State(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.get_buffer("total").add_(scaled(x)[1])
        return self.get_buffer("total") * 2


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


ROWS = torch.export.Dim("rows", min=2, max=64)
X = torch.linspace(-1, 2, 24).reshape(6, 4)

PROGRAMS: dict[str, tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]] = {
    "several ways": (Several(), (X,), {}),
    "lists": (Weights(), (X,), {}),
    "state": (State(), (X,), {"mutation": "functional"}),
    "dynamic": (Function(lambda x: scaled(torch.relu(x))[0] + 1), (X,), {"dynamic_shapes": (({0: ROWS},),)}),
    "int64": (Function(lambda x: scaled(x + 1)[0] * 2), (torch.arange(6),), {}),
    "bool": (Function(lambda x: scaled(x > 0)[0].logical_not()), (X,), {}),
    "bfloat16": (Function(lambda x: scaled(x)[0] + x), (X.bfloat16(),), {}),
    "uint8": (Function(lambda x: torch.view_as_real(squares(x)[1])), (torch.tensor([3, 200], dtype=torch.uint8),), {}),
    "complex": (Function(lambda x: torch.view_as_real(squares(torch.view_as_complex(x))[1])), (X[:, :2].clone(),), {}),
    "rank 0": (Function(lambda x: scaled(x.sum()[None])[0] + 1), (X,), {}),
    "a random number": (Function(lambda x: torch.ops.aten._standard_gamma(torch.relu(x) * 0) + 1), (X,), {}),
}


@pytest.mark.slow_rows(
    "(?<!lists)(?<!several ways)-tosa",
    "^several ways-tosa$",
    "^several ways-stablehlo$",
    "^lists-stablehlo$",
    "^dynamic-stablehlo$",
    "^lists-tosa$",
    "^uint8-stablehlo$",
    "^bool-stablehlo$",
    "^a random number-stablehlo$",
    "^complex-stablehlo$",
    "^state-stablehlo$",
    "^rank 0-stablehlo$",
    "^int64-stablehlo$",
)
@pytest.mark.parametrize("output_type", BACKEND_TYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_agree_with_eager(name: str, output_type: str):
    model, inputs, options = PROGRAMS[name]
    lowered = lower(model, *inputs, output_type=output_type, unsupported="outline", **options)
    assert lowered.operator_stubs
    lowered.verify().raise_if_failed()
    # Only the unsupported operator is left to PyTorch.
    assert {stub.operator.partition(".")[0] for stub in lowered.operator_stubs.values()} <= {"outlining", "aten"}
    assert all(record.failure is None for record in lowered.trace.stages)


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_stub_in_a_branch(output_type: str):
    lowered = lower(Branch(), X, output_type=output_type, unsupported="outline")
    assert [stub.arguments[1] for stub in lowered.operator_stubs.values()] == [3.0, 5.0]
    for x in (X, -X - 10):
        torch.testing.assert_close(lowered.run(x), Branch()(x))


def test_size_as_an_argument():
    model, shapes = Function(lambda x: filled(x, x.shape[0]) + 1), (({0: ROWS},),)
    lowered = lower(model, X, output_type="linalg", unsupported="outline", dynamic_shapes=shapes)
    for rows in (2, 5):
        assert torch.equal(lowered.run(X[:rows]), torch.full((rows, 4), rows + 1.0))


def test_in_place_mutation():
    lowered = lower(State(), X, output_type="linalg", unsupported="outline", mutation="mutable")
    lowered.verify().raise_if_failed()


def test_one_stub_per_kind_of_call():
    lowered = lower(Several(), X, output_type="linalg", unsupported="outline")
    assert [*lowered.operator_stubs] == [f"fallback_outlining_scaled_default_{i}" for i in range(3)]
    first, second, third = lowered.operator_stubs.values()
    assert first.operator == "outlining.scaled.default"
    assert first.arguments == (Passed(0), 3.0, (1,), None)
    assert second.arguments == (Passed(0), 3.0, (1,), Passed(1))
    assert third.arguments == (Passed(0), 4.0, None, None)
    assert [len(stub.places) for stub in lowered.operator_stubs.values()] == [2, 1, 1]
    assert f"{__file__}:" in first.places[0]
    assert "scaled(torch.relu(x), 3.0, [1])" in first.places[0]


@pytest.mark.parametrize("output_type", ["raw", "torch", *BACKEND_TYPES])
def test_supported_model_is_unchanged(output_type: str):
    def text(unsupported: str) -> str:
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(-1))
        torch.nn.init.ones_(model[0].weight)  # pyright: ignore[reportArgumentType]
        torch.nn.init.zeros_(model[0].bias)  # pyright: ignore[reportArgumentType]
        lowered = lower(model, X, output_type=output_type, unsupported=unsupported)
        assert not lowered.operator_stubs
        return lowered.module.operation.get_asm(enable_debug_info=True)

    assert text("outline").replace('"outline"', "") == text("error").replace('"error"', "")


@pytest.mark.parametrize("output_type", BACKEND_TYPES)
def test_saved_module_runs(output_type: str, tmp_path: Any):
    from fx_importer.mlir.bindings import ir, load_dialects, new_context

    lowered = lower(Several(), X, output_type=output_type, unsupported="outline")
    lowered.save(tmp_path / "several.mlir")
    manifest = Manifest.from_json(lowered.manifest.to_json())
    assert manifest == lowered.manifest
    load_dialects(context := new_context())
    module = ir.Module.parse((tmp_path / "several.mlir").read_text(), context)
    caller = Caller(manifest, {"main": JitBackend().load(module)})
    torch.testing.assert_close(caller(X), Several()(X))


@pytest.mark.parametrize("backend", ["stablehlo", "tosa_reference", "iree", "xla"])
def test_other_backends_suggest_the_default(backend: str):
    output_type = {"tosa_reference": "tosa", "iree": "linalg"}.get(backend, "stablehlo")
    lowered = lower(Several(), X, output_type=output_type, unsupported="outline")
    with pytest.raises(UsageError, match=r"leave the backend out|pip install"):
        lowered.caller(backend=backend)
    assert lowered.caller(backend="eager")(X)[0].shape == X.shape
    assert [check.backend for check in lowered.verify().checks] == ["jit"]


def test_exceptions_are_propagated():
    lowered = lower(
        Function(lambda x: failing(x) * 2), torch.full((4,), 4.0), output_type="linalg", unsupported="outline"
    )
    caller = lowered.caller()
    assert torch.equal(caller(torch.full((4,), 4.0)), torch.full((4,), 10.0))
    with pytest.raises(
        UsageError, match="'main' stopped in outlining.failing.default.*KeyError: 'no such luck'"
    ) as raised:
        caller(torch.full((4,), 40.0))
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(UsageError, match=r"returned float32\[2\], but the program was lowered for float32\[4\]"):
        caller(torch.full((4,), 2.0))
    assert torch.equal(caller(torch.full((4,), 4.0)), torch.full((4,), 10.0))  # no state remains after the failures


def test_import_errors_are_not_outlined():
    with pytest.raises(UnsupportedProgramError, match="unsupported='outline' is for what can be imported"):
        lower(Function(lambda x: x.sin() * 2), X.to(torch.complex128), output_type="tosa", unsupported="outline")


def test_errors_of_no_operator_are_not_outlined():
    model = Function(lambda x: scaled(x + 1)[0] * 2)
    with pytest.raises(StageFailed, match="may not fit into 32 bits"):
        lower(model, torch.arange(6), output_type="tosa", unsupported="outline", narrow_integers=True)


def test_unknown_policy():
    with pytest.raises(UsageError, match="unknown unsupported policy 'skip': accepted are 'error', 'outline'"):
        lower(Several(), X, output_type="linalg", unsupported="skip")
