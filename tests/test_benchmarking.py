"""Turns of engines."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from fx_importer.benchmarking import Example, chosen_engines, engines, measure, rivals
from fx_importer.benchmarking.engine_process import Loaded, Loading, Turn, on_device
from fx_importer.errors import UsageError
from fx_importer.options import Limits


@pytest.mark.parametrize(("seconds", "last"), [(0.02, Turn(3, True)), (0.06, Turn(1, True)), (2.0, Turn(1, False))])
def test_calls_of_turns_are_chosen_when_no_engine_loads(monkeypatch, seconds, last):
    asked = []

    class Answers:
        def __init__(self, _: str):
            pass

        def ask(self, what: str, request: Loading | Turn, _: Limits):
            asked.append((what, request))
            return Loaded(0.0, 0.0, 0, 0.0, True) if isinstance(request, Loading) else (seconds, 0)

    monkeypatch.setattr(sys.modules[measure.__module__], "Child", Answers)
    eager = chosen_engines()[0]
    candidates = [replace(eager, name=each) for each in ("eager", "second", "third")]
    found = measure(lambda: (None, (), {}), candidates, 1, 5, Limits(), loading_at_once=2)
    assert [each.calls for each in found] == [(seconds,) * 5] * 3
    loaded = [isinstance(request, Loading) for _, request in asked]
    assert loaded == [True] * 3 + [False] * (len(asked) - 3)
    assert asked[-3:] == [(each.name, last) for each in candidates]


class Counts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = torch.nn.Buffer(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x + self.calls


class Biased(torch.nn.Module):
    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, *, bias: torch.Tensor) -> torch.Tensor:
        return self.model(x) + bias


def test_engines_of_a_device():
    with pytest.raises(UsageError, match="unknown engine 'openvino' on 'cuda': accepted are inductor, xla"):
        chosen_engines(["openvino"], device="cuda")
    with pytest.raises(UsageError, match="PyTorch has no device 'cuda:7' here"):
        chosen_engines(device="cuda:7")
    example = Example(torch.nn.Linear(3, 4), ([torch.ones(2, 3)],), {"bias": torch.ones(4)})
    moved = on_device(example, torch.device("meta"))
    tensors = (*moved.model.parameters(), moved.args[0][0], moved.kwargs["bias"])
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_rivals_refuse_state(monkeypatch):
    monkeypatch.setattr(rivals, "importlib", SimpleNamespace(import_module=lambda name: SimpleNamespace(Core=list)))
    with pytest.raises(UsageError, match="functions without state, and a call of this model writes to calls"):
        rivals.openvino(Example(Counts(), (torch.ones(3, 2),), {}))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch.onnx
@pytest.mark.parametrize("candidate", [engines.ONNX_RUNTIME, engines.OPENVINO], ids=lambda candidate: candidate.name)
def test_rivals_agree_with_eager(candidate):
    for package in (candidate.name, "onnx", "onnxscript"):
        pytest.importorskip(package, reason="of the extra 'rivals'")
    model, x, bias = torch.nn.Conv2d(2, 3, 3).eval(), torch.randn(1, 2, 5, 5), torch.randn(3, 1, 1)
    example = Example(Biased(model), (x,), {"bias": bias})
    torch.testing.assert_close(candidate.prepare(example)(x, bias=bias)[0], model(x) + bias)
