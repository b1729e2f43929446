"""Programs of several devices on devices of XLA, beside torch.distributed's gloo."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import init_device_mesh

from fx_importer import Lowered, lower
from fx_importer.distributed import fake_process_group
from fx_importer.errors import UsageError
from fx_importer.execution.calls.mesh_caller import MeshCaller
from tests.distributed import gloo_ranks

needs_xla = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="the extra 'xla' is not installed")


def lowered_on(shape: tuple[int, ...], make: Callable[[Any], torch.nn.Module], *args: Any, **options: Any) -> Lowered:
    with fake_process_group(torch.Size(shape).numel()):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp")[: len(shape)])
        return lower(make(mesh), *args, output_type="stablehlo", mesh=mesh, **options)


def on_devices(lowered: Lowered) -> MeshCaller:
    try:
        return lowered.caller_on_mesh()
    except UsageError as error:
        pytest.skip(str(error))


class Cases(torch.nn.Module):
    """All collectives in all dtypes."""

    def __init__(self, mesh: Any):
        super().__init__()
        self.mesh = mesh

    def forward(self, inputs):
        return {name: case(inputs[dtype], self.mesh, axis) for name, case, dtype, axis in gloo_ranks.cases()}


def inputs(rank: int) -> dict[str, torch.Tensor]:
    return {dtype: gloo_ranks.rows(rank, dtype) for dtype in gloo_ranks.DTYPES}


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 4), (2, 2)])
def test_collectives_are_those_of_gloo(shape: tuple[int, int], tmp_path: Path):
    file = tmp_path / "gloo.pt"
    subprocess.run([sys.executable, "-W", "ignore", gloo_ranks.__file__, "{},{}".format(*shape), file], check=True)
    expected: list[dict[str, Any]] = torch.load(file)
    call = on_devices(lowered_on(shape, Cases, inputs(0)))
    for rank, found in enumerate(call([(inputs(each),) for each in range(len(expected))])):
        for name, tensor in found.items():
            assert torch.equal(tensor, expected[rank][name]), f"{name} on rank {rank}"


class Counting(torch.nn.Module):
    """The mean of what all ranks add up, which each keeps, and a weight that all share."""

    def __init__(self, mesh: Any):
        super().__init__()
        self.mesh = mesh
        self.weight = torch.nn.Parameter(torch.arange(3.0))
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(x.sum())
        return collectives.all_reduce(x * self.weight, "avg", (self.mesh, 0)), self.seen


@needs_xla
def test_each_rank_has_inputs_and_state_of_its_own():
    call = on_devices(lowered_on((2,), Counting, torch.ones(3), mutation="functional"))
    for step in (1, 2):
        found = call([(torch.ones(3),), (torch.full((3,), 3.0),)])
        assert all(torch.equal(output, torch.tensor([0.0, 2.0, 4.0])) for output, _ in found)
        assert [float(seen) for _, seen in found] == [3 * step, 9 * step]
    with pytest.raises(UsageError, match=r"has shape \[4\]"):
        call([(torch.ones(3),), (torch.ones(4),)])
    with pytest.raises(UsageError, match="takes as many tuples of inputs"):
        call([(torch.ones(3),)])
    assert [float(seen) for _, seen in call([(torch.ones(3),)] * 2)] == [9, 21]


@needs_xla
def test_only_programs_of_a_mesh_run_on_one():
    with pytest.raises(UsageError, match="the module runs on one device"):
        lower(torch.nn.ReLU(), torch.ones(3), output_type="stablehlo").caller_on_mesh()
