"""`verify` calls the model that was lowered: what its capture leaves out is found, and the model stays as it was."""

from __future__ import annotations

import random
import re
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_importer import Inputs, UsageError, lower
from fx_importer.errors import FrozenStateWarning
from fx_importer.frontend.undo_writes import WritesUndone
from fx_importer.verification import Status, Verdict
from fx_importer.verification.original_model import OriginalModel

X = torch.ones(2)


def verdict_of(model: Any, x: Tensor = X, calls: int = 1, **options: Any) -> Verdict:
    lowered = lower(model, x, output_type="raw", mutation="functional", **options)
    return lowered.verify(inputs=[Inputs((x,))] * calls, backends=["eager"])


def capture_of(verdict: Verdict) -> list[str]:
    """Return the remarks of the checks of the capture."""
    return [remark for remark in verdict.remarks() if remark.startswith("capture")]


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.cache.append(x.shape[0])
        return x + len(self.cache)


class Drawn(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * random.random()


class Branching(nn.Module):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 1:
            x.add_(1)
        return x * 2


class Later(nn.Module):
    """Writes to a parameter in the second call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.calls = nn.Parameter(torch.ones(2), requires_grad=False), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 1:
            self.weight.add_(1)
        return x * 1


def counting_function() -> Callable[[Tensor], Tensor]:
    calls = 0

    def count(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x * calls

    return count


@pytest.mark.parametrize(
    "model, remark",
    [
        (Counted(), "first at .*test_original_model.py:.*: return x [*] self.calls. .*attributes: calls [(]0 → 2[)]"),
        (Listed(), "return x [+] len.self.cache.*cache [(]list of 0 → list of 2[)]"),
        (Drawn(), "capture mismatch: the exported program differs from the model, first at .*random.random"),
        (counting_function(), "return x [*] calls.*calls [(]1 → 3[)]"),
        (Branching(), "input 'args.0.': 2 of 2 elements differ"),
        (Later(), "state 'weight': 2 of 2 elements differ"),
    ],
    ids=["counter", "list", "random", "variable", "input", "parameter"],
)
def test_what_the_capture_leaves_out_is_found(model: Any, remark: str) -> None:
    verdict = verdict_of(model)
    assert not verdict
    assert re.search(remark, "\n".join(capture_of(verdict)))
    assert "bisect compares with that" in verdict.remarks()[-1]


class Stateful(nn.Module):
    """A buffer that is replaced, one that is written, a tensor in an attribute, and a number."""

    total: Tensor
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("total", torch.zeros(2))
        self.register_buffer("last", torch.zeros(2))
        self.kept = torch.zeros(2)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.total = self.total + self.linear(x)
        self.last.copy_(x)
        self.kept.add_(x)
        x.mul_(2)
        return self.total + self.kept


def test_model_stays_as_it_was() -> None:
    model, x = Stateful(), torch.ones(2)
    lowered = lower(model, x, output_type="raw", mutation="functional")
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers()), "kept": model.kept, "x": x}
    before = {name: (tensor, tensor._version, tensor.detach().clone()) for name, tensor in tensors.items()}
    drawn = torch.get_rng_state()
    assert lowered.verify(inputs=[Inputs((x,))] * 3, backends=["eager"])
    now = {**dict(model.named_parameters()), **dict(model.named_buffers()), "kept": model.kept, "x": x}
    for name, (tensor, version, values) in before.items():
        assert now[name] is tensor
        assert tensor._version == version
        assert torch.equal(tensor, values)
    assert model.calls == 0
    assert torch.equal(torch.get_rng_state(), drawn)


def test_state_is_compared_over_several_calls() -> None:
    verdict = verdict_of(Stateful(), calls=2)
    assert verdict, str(verdict)
    assert {output.name for output in verdict.checks[1].outputs} == {
        "output", "input 'x'", "state 'total'", "state 'last'", "state 'kept'",
    }  # fmt: skip


@pytest.mark.parametrize("called", ["module", "method", "lambda"])
def test_writes_of_a_function_are_undone(called: str) -> None:
    model = Stateful()
    function = {
        "module": model,
        "method": model.forward,
        "lambda": lambda x: model.last.add_(x) + model.kept.mul_(2),
    }[called]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of torch.export and of the lowering: state that is replaced
        verdict = verdict_of(function, torch.ones(2), calls=2)
    assert bool(verdict) == (called != "method")  # which loses state
    assert not any(map(torch.count_nonzero, (model.total, model.last, model.kept)))
    assert type(model.total) is type(torch.zeros(0))
    assert model.calls == 0


@pytest.mark.parametrize("kind", [list, deque])
def test_containers_that_hooks_fill_are_emptied(kind: type) -> None:
    outputs = kind()
    model = nn.Sequential(nn.Linear(2, 2))
    model.__dict__["filters"] = [torch.ones(2).numpy()]  # which compares by element
    model[0].register_forward_hook(lambda module, args, output: outputs.append(output))
    with pytest.warns(FrozenStateWarning, match=f"a {kind.__name__}"):
        assert verdict_of(model)
    assert not outputs


def test_threads_that_verify_leave_compilation_on() -> None:
    stance = torch._dynamo.eval_frame._stance
    model = nn.Sequential(nn.Identity())
    lowered = lower(model, X, output_type="raw")
    model[0].register_forward_pre_hook(lambda module, args: time.sleep(0.05))
    threads = [threading.Thread(target=lambda: lowered.verify(backends=["eager"])) for _ in range(2)]
    for thread in threads:
        thread.start()
        time.sleep(0.03)
    for thread in threads:
        thread.join()
    assert torch._dynamo.eval_frame._stance is stance


def test_function_that_replaces_a_buffer_of_a_module_warns() -> None:
    model = Stateful()
    with pytest.warns(UserWarning, match="keeps tensors from one call to the next.*total"):
        lower(lambda x: model(x), X, output_type="raw", mutation="functional")


def test_weights_are_not_copied() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    held = dict(model.state_dict(keep_vars=True))
    copied = OriginalModel.of(model).copied(held, {})
    assert isinstance(copied.function, nn.Module)
    assert all(tensor is held[name] for name, tensor in copied.function.state_dict(keep_vars=True).items())
    writes = WritesUndone()
    with copied.called(writes):
        copied.function(torch.ones(3, 2)).relu_()
    assert not writes.before


class Locked(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.lock = threading.Lock()


def test_model_that_cannot_be_copied_is_named() -> None:
    verdict = verdict_of(Locked())
    assert verdict
    assert "the model cannot be copied (TypeError: cannot pickle '_thread.lock' object)" in verdict.reference
    assert verdict.reference in str(verdict)


class Refusing(nn.Module):
    refuses = False

    def forward(self, x: Tensor) -> Tensor:
        if self.refuses:
            raise ValueError("not today")
        return x + 1


def test_model_that_raises_is_a_failure() -> None:
    model = Refusing()
    lowered = lower(model, X, output_type="raw")
    model.refuses = True
    verdict = lowered.verify(X, backends=["eager"])
    assert [(check.backend, check.status) for check in verdict.checks] == [
        ("capture", Status.FAILED),
        ("eager", Status.PASSED),
    ]
    assert "the model raises ValueError and the exported program does not: not today" in str(verdict)


def test_settings_are_those_of_the_lowering() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.9)).eval()
    with torch.autocast("cpu", torch.bfloat16):
        lowered = lower(model, X, output_type="raw")
    model.train()
    assert lowered.verify(X, backends=["eager"])
    assert model[1].training


def test_weights_that_were_given_are_the_models() -> None:
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    weights = nn.Linear(2, 2).state_dict()
    lowered = lower(model, torch.ones(3, 2), output_type="linalg", weights="external").with_weights(weights)
    assert lowered.verify(torch.ones(3, 2), backends=["eager"])
    assert model.weight.is_meta


class Constants(nn.Module):
    """Tensors that a module has copies of: one value, bools, other strides, and in TOSA what is transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.ones = nn.Parameter(torch.ones(8))
        self.bools = nn.Buffer(torch.arange(8) > 3)
        self.columns = nn.Buffer(torch.randn(8, 8).t())
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.where(self.bools, x * self.ones, -x) @ self.columns)


@pytest.mark.parametrize("name", ["ones", "bools", "columns", "linear.weight"])
@pytest.mark.parametrize("output_type", ["linalg", "tosa"])
def test_changed_weights_of_which_the_module_has_copies(output_type: str, name: str) -> None:
    model, x = Constants(), torch.randn(2, 8)
    lowered = lower(model, x, output_type=output_type, fold=False)
    tensor = model.state_dict()[name]
    tensor.logical_not_() if tensor.dtype is torch.bool else tensor.mul_(3)
    if name == "linear.weight" and output_type == "linalg":
        assert torch.allclose(lowered.caller(backend="jit")(x), model(x), 1e-4, 1e-5)
        return
    for use in (lambda: lowered.caller(backend="jit"), lambda: lowered.verify(x, backends=["jit"])):
        with pytest.raises(UsageError, match="changed in place after the lowering"):
            use()
