"""Tensors without values: freed storages, meta and fake tensors are refused by name, and their memory is never read."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fx_importer import lower
from fx_importer.errors import UnsupportedProgramError, UsageError
from fx_importer.mlir.tensor_elements import missing_values


def freed(*shape: int) -> torch.Tensor:
    tensor = torch.ones(*shape)
    tensor.untyped_storage().resize_(0)
    return tensor


def cut(*shape: int) -> torch.Tensor:
    tensor = torch.ones(*shape)
    tensor.untyped_storage().resize_(tensor.nbytes - 1)
    return tensor


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


def fake(*shape: int) -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(*shape)


KINDS = [
    (freed, "has no memory: its storage has 0 of"),
    (cut, "of 256 bytes"),
    (meta, "on the meta device"),
    (fake, "fake"),
]
ENGINES = [("linalg-on-tensors", "jit"), ("torch", "iree"), ("stablehlo", "xla"), ("tosa", "tosa_reference")]
X = torch.randn(8, 8)


def linear() -> torch.nn.Linear:
    return torch.nn.Linear(8, 8).eval()


@pytest.mark.parametrize(("output_type", "backend"), ENGINES)
def test_calls(output_type, backend):
    caller = lower(linear(), X, output_type=output_type).caller(backend=backend)
    for make, _problem in KINDS:
        with pytest.raises(UsageError, match=r"argument 0 \('input'\)|the input"):
            caller(make(8, 8))


def test_recurring_call():
    caller, x = lower(linear(), X, output_type="linalg-on-tensors").caller(backend="jit"), X.clone()
    caller(x)
    caller(x)
    x.untyped_storage().resize_(0)
    with pytest.raises(UsageError, match="has no memory: its storage has 0 of 256 bytes"):
        caller(x)


@pytest.mark.parametrize(("make", "problem"), KINDS)
def test_verify_and_bisect(make: Callable[..., torch.Tensor], problem: str):
    lowered = lower(linear(), X, output_type="linalg-on-tensors")
    for check in (lowered.verify, lowered.bisect):
        with pytest.raises(UsageError, match=rf"the input \[0\] .*{problem}"):
            check(make(8, 8), isolate=False)


@pytest.mark.parametrize("output_type", ["torch", "tosa", "linalg-on-tensors", "stablehlo"])
@pytest.mark.parametrize(("make", "problem"), [(freed, "has no memory"), (meta, "meta"), (fake, "fake")])
def test_weights_in_the_module(make, problem, output_type):
    model = linear()
    model.weight = torch.nn.Parameter(make(8, 8), requires_grad=False)
    with pytest.raises(UnsupportedProgramError, match=rf"'weight': .*{problem}"):
        lower(model, X, output_type=output_type)


@pytest.mark.parametrize("weights", ["external", "args"])
@pytest.mark.parametrize("before", [False, True])
def test_weights_outside(weights, before, tmp_path: Path):
    model = linear()
    if before:
        model.weight.untyped_storage().resize_(0)
    lowered = lower(model, X, output_type="linalg-on-tensors", weights=weights)
    model.weight.untyped_storage().resize_(0)
    problem = "'weight'.* has no memory"
    with pytest.raises(UsageError, match=problem):
        lowered.run(X)
    with pytest.raises(UsageError, match=problem):
        lowered.save(tmp_path / "m.mlirbc", weights=tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())


def test_weights_and_state_of_the_user():
    class Sum(torch.nn.Module):
        total: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    lowered = lower(Sum(), X, output_type="linalg-on-tensors", mutation="functional")
    outside = lower(linear(), X, output_type="linalg-on-tensors", weights="external")
    for make, problem in KINDS:
        with pytest.raises(UsageError, match=rf"'total' .*{problem}"):
            lowered.caller({"total": make(8, 8)})
        with pytest.raises(UsageError, match=rf"'weight' .*{problem}"):
            outside.with_weights({"weight": make(8, 8), "bias": torch.ones(8)})


@pytest.mark.parametrize(
    "tensor", [torch.empty(0, 3), torch.ones(4)[2:], torch.ones(2, 3).t(), torch.ones(1).expand(5), torch.ones(())]
)
def test_views_have_values(tensor):
    assert missing_values(tensor) is None


def test_offsets_count():
    tensor = torch.ones(8)
    tail = tensor[6:]
    tensor.untyped_storage().resize_(28)
    assert re.match("has no memory: its storage has 28 of 32 bytes", missing_values(tail) or "")


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_copy_of_a_lowering_names_save(copied):
    with pytest.raises(UsageError, match=r"lowered\.save\('model\.mlirbc'\) writes it"):
        copied(lower(linear(), X, output_type="torch"))
