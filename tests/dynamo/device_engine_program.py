"""A script: graphs and modules with tensors of a device, on an engine that runs there; see `python_device`."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fx_importer import UsageError, lower
from fx_importer.calls.backend import Loaded
from fx_importer.calls.call_signature import HOST
from fx_importer.calls.specialization import Specialized
from fx_importer.dynamo.backend_options import GraphOptions
from fx_importer.engines import XlaBackend, engine_table
from fx_importer.engines.xla.engine import XLA_ENGINE
from fx_importer.errors import EagerFallbackWarning
from fx_importer.mlir.bindings import ir
from tests import python_device

loaded: list[str] = []
"""The functions that were loaded on the device."""


class OnDevice:
    """XLA's host, which takes and returns tensors of the device, except numbers, which may be on the host."""

    name = "there"

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        loaded.append(func_name)
        function = XlaBackend().load(module, func_name)
        if not isinstance(function, Specialized):
            return self._on_device(function)
        signature = replace(function.signature, device=there.device, host=False)
        return replace(
            function,
            signature=signature,
            load=lambda module, static: self._on_device(function.load(module, replace(static, device=HOST, host=True))),
        )

    def _on_device(self, function: Loaded) -> Loaded:
        def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            assert {tensor.device.type for tensor in tensors if tensor.dim()} <= {python_device.DEVICE}
            return tuple(result.to(python_device.DEVICE) for result in function(*[tensor.cpu() for tensor in tensors]))

        return call


class Net(torch.nn.Module):
    """A buffer that is a view of a weight, one that calls write, factories, and a tensor that stays on the host."""

    row: torch.Tensor
    calls: torch.Tensor

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(3, 5), torch.nn.Linear(5, 2)
        self.register_buffer("row", self.last.weight.detach()[1])
        self.register_buffer("calls", torch.zeros(()))
        self.constant = torch.arange(5.0)

    def forward(self, x):
        self.calls.add_(1)
        y = F.gelu(self.first(x)) * self.row + torch.arange(5, device=x.device)
        return self.last(y + self.constant.to(x.device)) * self.calls


def on_both(x, y):
    """Compute on both devices, with values that cross and one that leaves no trace."""
    z = (x.sin() * torch.tensor(2.0)).cpu() + y.cos()
    return z.to(x.device).exp(), z * 2, x.sum().cpu().to(x.device) + x


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="fx_importer", options=options)


library = python_device.register()
torch.manual_seed(0)
x, y = torch.randn(2, 3), torch.randn(2, 3)
there = x.to(python_device.DEVICE)
engine = replace(XLA_ENGINE, name="there", devices=(python_device.DEVICE,), create=lambda options: OnDevice())
engines = {**engine_table.all_engines(), "there": engine}
engine_table.all_engines = lambda: engines
warnings.simplefilter("error", EagerFallbackWarning)

for options in ({}, {"engine": OnDevice(), "output_type": "stablehlo"}):
    loaded.clear()
    model = Net()
    expected = copy.deepcopy(model)
    model.to(python_device.DEVICE)
    for net in (model, expected):
        net.row = net.last.weight.detach()[1]
    if options:  # of the user, with which a graph is not divided
        model.constant = model.constant.to(python_device.DEVICE)
    step = compiled(model, **options)
    torch.testing.assert_close(step(there).cpu(), expected(x))
    step(there).square().sum().backward()
    expected(x).square().sum().backward()
    gradients = [[parameter.grad for parameter in net.parameters()] for net in (model.cpu(), expected)]
    torch.testing.assert_close(*gradients)
    assert len(loaded) == (2 if options else 3), loaded  # before and after the copy of the constant, and backward

loaded.clear()
results = compiled(on_both)(there, y)
assert [result.device.type for result in results] == ["pygpu", "cpu", "pygpu"]
for result, value in zip(results, on_both(x, y), strict=True):
    torch.testing.assert_close(result.cpu(), value)
assert loaded

dropped = torch.compile(lambda x: F.dropout(x, 0.5) * 2, backend="fx_importer", dynamic=True)
for rows in (50, 60):
    assert dropped(torch.ones(rows, 2, device=python_device.DEVICE)).cpu().unique().tolist() == [0, 4]

refused = (("jit", "the backend 'jit' does not run on 'pygpu': 'there' can"), ("xla", "the backend 'xla' does not run"))
for name, message in refused:
    functions = [compiled(function, engine=name) for function in (torch.neg, torch.sin)]
    with pytest.warns(EagerFallbackWarning, match=f"with tensors on pygpu:0 in eager PyTorch: {message}") as warned:
        results = [function(there).cpu() for function in functions]
    torch.testing.assert_close(results, [-x, x.sin()])
    assert len(warned) == 1
with pytest.raises(UsageError, match="PyTorch has no device 'pygpu:1' here: it has 1 of 'pygpu'"):
    GraphOptions.of({}, None, "pygpu:1")
with pytest.raises(UsageError, match="no engine runs tosa on 'pygpu'"):
    GraphOptions.of({"output_type": "tosa"}, None, "pygpu:0")

model = Net().to(python_device.DEVICE)
lowered = lower(model, there, output_type="stablehlo", mutation="functional")
verdict = lowered.verify(there, device=python_device.DEVICE)
assert verdict, verdict
assert [check.backend for check in verdict.checks] == ["there"]
with pytest.raises(UsageError, match="the backend 'jit' does not run on 'pygpu': 'there' can"):
    lowered.verify(there, device=python_device.DEVICE, backends=["jit"])
