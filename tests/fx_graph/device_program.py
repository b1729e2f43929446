"""A script: a model, its inputs and its weights on a device that the host cannot read, see `python_device`."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from fx_importer import ExportError, UsageError, lower
from tests import python_device


class Net(torch.nn.Module):
    """One weight under two names, a view of it, a buffer that calls write, and factories on the device."""

    row: torch.Tensor
    calls: torch.Tensor

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.other = self.linear
        self.register_buffer("row", self.linear.weight.detach()[1])
        self.register_buffer("calls", torch.zeros(()))
        self.constant = torch.arange(3.0)

    def forward(self, x):
        self.calls.add_(1)
        y = F.relu(self.linear(x)) * self.row + torch.arange(3, device=x.device) + self.other(x)
        return y * self.calls + torch.ones(3, device=x.device) + self.constant.to(x.device)


def check(output_type: str, weights: str) -> None:
    """Compare the lowered model with the model, and see that its weights are on the CPU."""
    model = Net().eval()
    expected = copy.deepcopy(model)(x)
    model.to(python_device.DEVICE)
    model.row = model.linear.weight.detach()[1]
    lowered = lower(model, there, output_type=output_type, weights=weights, mutation="functional")
    assert python_device.DEVICE not in str(lowered.module)
    assert str(model.linear.weight.device) == "pygpu:0"
    program = lowered.exported["main"]
    state = {**program.state_dict, **program.constants}
    assert {value.device.type for value in state.values()} == {"cpu"}
    assert state["linear.weight"] is state["other.weight"]
    assert state["linear.weight"].untyped_storage().data_ptr() == state["row"].untyped_storage().data_ptr()
    verdict = lowered.verify(there, backends=["jit"], isolate=False)
    assert verdict, verdict
    call = lowered.caller(backend="jit")
    torch.testing.assert_close(call(x), expected)
    refuses("is on pygpu:0, but the function takes tensors on the CPU: pass it with `.cpu()`", lambda: call(there))


def refuses(text: str, call: Callable[[], object]) -> None:
    with pytest.raises((ExportError, UsageError), match=re.escape(text)):
        call()


library = python_device.register()
torch.manual_seed(0)
x = torch.randn(2, 3)
there = x.to(python_device.DEVICE)
check("linalg-on-tensors", "inline")
check("stablehlo", "args")
check("tosa", "inline")
refuses("two devices: the model on pygpu:0, its inputs on cpu", lambda: lower(Net().to(python_device.DEVICE), x))
refuses("two devices: the model on cpu, its inputs on pygpu:0", lambda: lower(Net(), there))
refuses("another device (its inputs on pygpu:0): make it there", lambda: lower(lambda x: x + torch.ones(3), there))
