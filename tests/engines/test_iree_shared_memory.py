"""Tensors that IREE takes by DLPack, on the CPU: as those of CUDA are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from fx_importer import UsageError, lower
from fx_importer.engines import IreeBackend
from fx_importer.engines.iree import iree_backend
from fx_importer.engines.iree.iree_devices import takes_tensors
from fx_importer.engines.iree.iree_shared_memory import SharedDevice
from fx_importer.engines.iree.iree_targets import iree_target

pytest.importorskip("iree.compiler", reason="the extra 'iree' is not installed")


@pytest.fixture
def calls(monkeypatch) -> Counter[str]:
    """Make the target of this machine take tensors by DLPack, and count what is passed so."""
    counts: Counter[str] = Counter()

    def counted(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def call(*args, **kwargs):
            counts[name] += 1
            counts["written"] += kwargs.get("written", False)
            return method(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    monkeypatch.setattr(iree_backend, "iree_target", lambda name: replace(iree_target(name), shared="cpu"))
    assert takes_tensors(iree_backend.iree_target("cpu"), 0)
    counted(SharedDevice, "taken")
    return counts


def updated(x, at):
    return x.index_put((at,), torch.full((1, 16), 3.0)), x + 1


def with_slice(x):
    return torch.slice_scatter(x, torch.zeros(2, 16), 0, 1, 3), x, x * 2


@pytest.mark.parametrize(
    "model, more, output_type, count",
    [
        (updated, [torch.tensor([2])], "linalg-on-tensors", 2),
        (with_slice, [], "linalg-on-tensors", 1),
        (with_slice, [], "stablehlo", 1),
    ],
)
def test_arguments_that_iree_overwrites_are_copied(calls, model, more, output_type, count):
    x = torch.randn(8, 16)
    call = lower(model, x, *more, output_type=output_type).caller(backend=IreeBackend())
    expected, before = model(x, *more), x.clone()
    for given in (x, torch.randn(17, 8)[1:].reshape(8, 16).copy_(x)):  # the second is not aligned
        torch.testing.assert_close(call(given, *more), expected)
        assert torch.equal(given, before)
    assert calls["taken"] == 2 * count
    assert calls["written"]


class Total(torch.nn.Module):
    total: torch.Tensor

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(16, 4))
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total.add_((x @ self.weight).sum(0))
        return self.total, self.weight, x[:0]


@pytest.mark.parametrize("weights", ["inline", "args"])
def test_results_are_copies_of_state_and_constants(calls, weights):
    model, x = Total(), torch.randn(8, 16)
    lowered = lower(model, x, output_type="linalg-on-tensors", mutation="functional", weights=weights)
    call = lowered.caller(backend=IreeBackend())
    for _ in range(2):
        expected = [each.detach().clone() for each in model(x)]
        results = call(x)
        torch.testing.assert_close([each.detach() for each in results], expected)
        for each in results:
            each.detach().fill_(7)  # neither the state nor the weight
    assert calls["taken"] >= 2
    torch.testing.assert_close(call.state["total"], model.total)


@pytest.mark.slow_rows("^dtype[124]$")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_dtypes(calls, dtype):
    x = torch.arange(32).reshape(4, 8).to(dtype)
    call = lower(lambda x: (x.reshape(-1)[:8], x.float() + 1), x, output_type="linalg-on-tensors").caller(
        backend=IreeBackend()
    )
    part, added = call(x)
    assert torch.equal(part.float(), x.reshape(-1)[:8].float())
    assert torch.equal(added, x.float() + 1)
    assert calls["taken"] == 1


def test_tensors_that_iree_does_not_take_are_copied(monkeypatch):
    def refused(*args, **kwargs):
        raise RuntimeError("no such memory")

    monkeypatch.setattr(SharedDevice, "taken", refused)
    target = replace(iree_target("cpu"), shared="cpu", flags=(*iree_target("cpu").flags, "--iree-opt-level=O1"))
    monkeypatch.setattr(iree_backend, "iree_target", lambda name: target)
    x = torch.randn(8, 16)
    call = lower(torch.nn.ReLU(), x, output_type="linalg-on-tensors").caller(backend=IreeBackend())
    assert torch.equal(call(x), torch.relu(x))


def test_a_device_that_the_driver_lacks_is_named():
    lowered = lower(torch.nn.ReLU(), torch.ones(3), output_type="linalg-on-tensors")
    with pytest.raises(UsageError, match="there is no device 1 of IREE's driver 'local-task': it has 1 device"):
        lowered.caller(backend=IreeBackend(index=1))
