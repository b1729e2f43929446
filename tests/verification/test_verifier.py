"""Verification of lowered programs against eager PyTorch, on backends of every kind."""

import dataclasses
import importlib.util

import pytest
import torch
from torch import nn

from fx_importer import Inputs, MismatchError, UsageError, lower
from fx_importer.engines import IsolatedBackend, JitBackend
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.process import optional_packages
from fx_importer.verification import Status

aten = torch.ops.aten


class Counter(nn.Module):
    """Writes to a buffer and to its input, and returns leaves of all kinds."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.calls = nn.Buffer(torch.zeros(2))

    def forward(self, x, *, scale=None):
        self.calls.add_(1)
        y = self.linear(x).relu_() + self.calls
        x.mul_(2)
        return {"y": y if scale is None else y * scale, "nothing": None, "rows": x.shape[0]}


ROWS = {0: torch.export.Dim("rows")}
NAMES = ["output['y']", "output['nothing']", "output['rows']", "state 'calls'", "input 'x'"]


def statuses(verdict):
    return {each.backend: each.status for each in verdict.checks}


@pytest.mark.parametrize("mutation", ["functional", "mutable"])
def test_state_is_kept_between_input_sets_and_compared(mutation):
    model = Counter()
    lowered = lower(model, torch.randn(4, 3), output_type="linalg", mutation=mutation, dynamic_shapes={"x": ROWS})
    given = torch.ones(2, 3)
    sets = [Inputs((torch.randn(5, 3),)), Inputs((given,))]
    verdict = lowered.verify(inputs=sets, backends=["jit", "eager"])
    assert verdict.passed, str(verdict)
    assert [(each.backend, each.inputs) for each in verdict.checks] == [
        ("jit", 0),
        ("jit", 1),
        ("eager", 0),
        ("eager", 1),
    ]
    assert sorted(each.name for each in verdict.checks[1].outputs) == sorted(NAMES)
    assert torch.equal(model.calls, torch.zeros(2))
    assert torch.equal(given, torch.ones(2, 3))


def test_example_inputs_are_the_default():
    lowered = lower(
        Counter(), torch.randn(4, 3), output_type="raw", mutation="functional", kwargs={"scale": torch.ones(2)}
    )
    assert lowered.verify(backends=["eager"])
    verdict = lowered.verify(torch.randn(4, 3), scale=torch.full((2,), 3.0), backends="eager")
    assert verdict.passed, str(verdict)


def test_functions_are_verified_together():
    model = nn.Linear(3, 2)
    programs = {name: torch.export.export(model, (torch.randn(rows, 3),)) for name, rows in (("one", 1), ("two", 2))}
    lowered = lower(programs, output_type="linalg")
    verdict = lowered.verify(backends=["jit"], isolate=False)
    assert [each.function for each in verdict.checks] == ["one", "two"]
    assert verdict
    with pytest.raises(UsageError, match="available are 'one', 'two'"):
        lowered.verify(torch.randn(1, 3))


def wrong_gelu():
    table = {aten.gelu.default: lambda x, approximate="none": x * torch.sigmoid(1.702 * x)}
    return lower(nn.GELU(), torch.randn(4, 4) * 3, output_type="linalg", decomposition_table=table)


def test_mismatch_is_reported():
    lowered = wrong_gelu()
    verdict = lowered.verify(backends=["jit"], isolate=False)
    assert statuses(verdict) == {"jit": Status.MISMATCH}
    assert "elements differ" in str(verdict)
    with pytest.raises(MismatchError, match="does not match eager PyTorch"):
        verdict.raise_if_failed()
    assert lowered.verify(backends=["jit"], isolate=False, rtol=1.0, atol=1.0)


WRITES_TO_NULL = """
func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = llvm.mlir.zero : !llvm.ptr
  %1 = llvm.load volatile %0 : !llvm.ptr -> i64
  return %a : tensor<4x4xf32>
}"""


def module(text: str) -> ir.Module:
    load_dialects(context := new_context())
    return ir.Module.parse(text, context)


def test_crash_is_a_status_and_the_next_backend_runs():
    lowered = dataclasses.replace(wrong_gelu(), module=module(WRITES_TO_NULL))
    verdict = lowered.verify(inputs=[Inputs((torch.ones(4, 4),))] * 2, backends=["jit", "eager", "jit"])
    assert [each.status for each in verdict.checks] == [
        *[Status.CRASHED] * 2,
        *[Status.MISMATCH] * 2,
        *[Status.CRASHED] * 2,
    ]
    assert verdict.checks[0].signal == "SIGSEGV"
    assert "had ended before" in verdict.checks[1].reason


def test_unsupported_is_a_status_with_a_reason(monkeypatch):
    monkeypatch.setattr(optional_packages, "is_installed", lambda name: not name.startswith("jax"))
    lowered = lower(torch.sin, torch.ones(4), output_type="stablehlo")
    backends = ["stablehlo", "xla", "tosa_reference"]
    verdict = lowered.verify(torch.randn(4), backends=backends, isolate=False)
    assert list(statuses(verdict).values()) == [Status.PASSED, Status.NOT_INSTALLED, Status.UNSUPPORTED]
    assert not verdict.passed
    assert "fx-importer[xla]" in str(verdict)
    assert lowered.verify(torch.randn(4), isolate=False), "results of backends that were not requested do not count"


class WrongBackend:
    """A backend with wrong results, which raises for negative numbers."""

    name = "own"

    def load(self, module, func_name="main"):
        def run(x):
            if (x < 0).any():
                raise ValueError("negative")
            return (x + 1,)

        return run


def test_user_backend():
    lowered = lower(nn.ReLU(), torch.ones(2), output_type="raw")
    verdict = lowered.verify(inputs=[Inputs((sign * torch.ones(2),)) for sign in (1, -1)], backends=[WrongBackend()])
    assert [each.status for each in verdict.checks] == [Status.MISMATCH, Status.FAILED]
    assert verdict.checks[1].reason == "ValueError: negative"


def test_usage_errors():
    lowered = lower(nn.ReLU(), torch.ones(2), output_type="raw")
    with pytest.raises(UsageError, match="no backend runs raw by itself"):
        lowered.verify(torch.ones(2))
    with pytest.raises(UsageError, match="unknown backend 'nobody'"):
        lowered.verify(torch.ones(2), backends=["nobody"])
    with pytest.raises(UsageError, match="or several in inputs="):
        lowered.verify(torch.ones(2), inputs=[Inputs((torch.ones(2),))])
    with pytest.raises(UsageError, match="the program was exported for args"):
        lowered.verify(torch.ones(2), torch.ones(2), backends=["eager"])


def test_worker_runs_many_modules_and_returns_errors():
    isolated = IsolatedBackend("jit")
    add = module(
        "func.func @main(%a: memref<2xf32>, %b: i64) -> i64 {\n"
        "%z = arith.constant 0 : index\n %c = arith.constant 7.0 : f32\n memref.store %c, %a[%z] : memref<2xf32>\n"
        "return %b : i64 }"
    )
    run, again = isolated.load(add), isolated.load(add)
    written = torch.zeros(2)
    assert run(written[:], 3) == (3,)
    assert written.tolist() == [7, 0]
    with pytest.raises(UsageError, match="takes 2 arguments, but got 1"):
        again(torch.ones(2))
    with pytest.raises(UsageError, match="has no function 'other'"):
        isolated.load(add, "other")
    del run
    assert again(written, 4) == JitBackend().load(add)(written, 4)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="the extra 'xla' is not installed")
def test_xla_is_isolated():
    lowered = lower(nn.Linear(3, 2), torch.ones(2, 3), output_type="stablehlo")
    assert lowered.verify(torch.randn(2, 3), backends=["xla"])


def test_names_in_texts_are_escaped():
    """A name of a model or file may command the terminal that prints a verdict or a result."""
    lowered = lower(lambda x: {"red\n\x1b[31m": x + 1}, torch.ones(2), output_type="linalg-on-tensors")
    verdict = lowered.verify(backends=[JitBackend()])
    assert r"output['red\n\x1b[31m']" in str(verdict)
    assert r"red\n\x1b[31m" in str(lowered)
    assert "\x1b" not in str(verdict) + str(lowered)
