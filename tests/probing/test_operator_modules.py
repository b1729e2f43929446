"""Single-op programs of a program's operators."""

from __future__ import annotations

import torch

import fx_importer
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.probing.operator_modules import Probe, probes_of


class Branches(torch.nn.Module):
    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,))
        a, b = torch.split(x, 2)
        return y, a, b, torch.topk(x, 2), x.sin()


def probes(model: torch.nn.Module, *inputs: torch.Tensor) -> list[Probe]:
    return probes_of(fx_importer.export_and_import(model, *inputs, output_type="raw").operation)


def test_every_call_is_a_valid_module() -> None:
    found = probes(Branches(), torch.randn(4, 4))
    for probe in found:
        assert ir.Module.parse(probe.text, new_context()).operation.verify(), probe.call


def test_equal_calls_share_a_probe() -> None:
    sines = [probe for probe in probes(Branches(), torch.randn(4, 4)) if probe.op == "aten.sin.default"]
    assert [len(probe.calls) for probe in sines] == [2]


def test_text_of_a_call() -> None:
    calls = {probe.call for probe in probes(Branches(), torch.randn(4, 4))}
    assert "aten.topk.default(f32[4,4], 2, -1, True, True) -> f32[4,2], si64[4,2]" in calls
    assert "aten.sum.dim_IntList(f32[4,4], [], False, None) -> f32[]" in calls


def test_list_unpack_is_probed_with_its_producer() -> None:
    names = {probe.op for probe in probes(Branches(), torch.randn(4, 4))}
    assert "aten.split_with_sizes.default" in names
    assert not any("getitem" in name for name in names)


def test_branch_follows_its_operators() -> None:
    found = probes(Branches(), torch.randn(4, 4))
    branch = next(probe for probe in found if probe.op == "prim.If")
    assert {each.op for each in branch.inside} == {"aten.sin.default", "aten.add.Scalar", "aten.cos.default"}
    assert all(found.index(each) < found.index(branch) for each in branch.inside)


def test_large_constants_are_equal_and_small_ones_kept() -> None:
    class Weights(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.large = torch.nn.Parameter(torch.randn(100, 4))
            self.other = torch.nn.Parameter(torch.randn(100, 4))

        def forward(self, x):
            return x + self.large, x + self.other, x + torch.tensor([1.0, 2.0, 3.0, 5.0])

    found = probes(Weights(), torch.randn(100, 4))
    assert len(found) == 2
    assert sorted("dense_resource" in probe.text for probe in found) == [False, False]
    assert any("5.000000e+00" in probe.text for probe in found)
