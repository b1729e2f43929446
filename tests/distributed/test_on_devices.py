"""Programs of several devices on devices of XLA, beside torch.distributed's gloo."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import init_device_mesh

from fx_importer import Lowered, lower
from fx_importer.calls.mesh_caller import MeshCaller
from fx_importer.distributed import fake_process_group
from fx_importer.errors import UsageError
from tests.distributed import gloo_ranks

needs_xla = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="the extra 'xla' is not installed")


def lowered_on(shape: tuple[int, ...], make: Callable[[Any], torch.nn.Module], *args: Any, **options: Any) -> Lowered:
    with fake_process_group(torch.Size(shape).numel()):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp")[: len(shape)])
        return lower(make(mesh), *args, output_type="stablehlo", mesh=mesh, **options)


def on_devices(lowered: Lowered, backend: str) -> MeshCaller:
    try:
        return lowered.caller_on_mesh(backend=backend)
    except UsageError as error:
        if backend != "xla":
            raise
        pytest.skip(str(error))


BACKENDS = pytest.mark.parametrize("backend", [pytest.param("xla", marks=needs_xla), "jit"])


class Cases(torch.nn.Module):
    """All collectives in one dtype, without some."""

    def __init__(self, mesh: Any, dtype: str, without: Sequence[str]):
        super().__init__()
        self.mesh, self.dtype, self.without = mesh, dtype, {*without}

    def forward(self, x):
        return {
            name: case(x, self.mesh, axis)
            for name, case, dtype, axis in gloo_ranks.cases()
            if dtype == self.dtype and not self.without & {*name.split()}
        }


@pytest.mark.slow
@BACKENDS
@pytest.mark.parametrize("shape", [(2, 4), (2, 2)])
def test_collectives_are_those_of_gloo(shape: tuple[int, int], backend: str, tmp_path: Path):
    file = tmp_path / "gloo.pt"
    subprocess.run([sys.executable, "-W", "ignore", gloo_ranks.__file__, "{},{}".format(*shape), file], check=True)
    expected: list[dict[str, Any]] = torch.load(file)
    for dtype in gloo_ranks.DTYPES:
        without = () if backend == "jit" else gloo_ranks.BITWISE
        rows = [gloo_ranks.rows(rank, dtype) for rank in range(len(expected))]
        call = on_devices(lowered_on(shape, partial(Cases, dtype=dtype, without=without), rows[0]), backend)
        for rank, found in enumerate(call([(each,) for each in rows])):
            assert len(found) >= 2 * len(gloo_ranks.MOVES)
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


@BACKENDS
def test_each_rank_has_inputs_and_state_of_its_own(backend: str):
    call = on_devices(lowered_on((2,), Counting, torch.ones(3), mutation="functional"), backend)
    for step in (1, 2):
        found = call([(torch.ones(3),), (torch.full((3,), 3.0),)])
        assert all(torch.equal(output, torch.tensor([0.0, 2.0, 4.0])) for output, _ in found)
        assert [float(seen) for _, seen in found] == [3 * step, 9 * step]
    with pytest.raises(UsageError, match=r"has shape \[4\]"):
        call([(torch.ones(3),), (torch.ones(4),)])
    with pytest.raises(UsageError, match="takes a list of as many tuples of inputs, one for each rank, and got tuple$"):
        call([(torch.ones(3),)])
    with pytest.raises(UsageError, match="and got Tensor, Tensor$"):
        call([torch.ones(3)] * 2)  # type: ignore[list-item]
    assert [float(seen) for _, seen in call([(torch.ones(3),)] * 2)] == [9, 21]


@needs_xla
def test_only_programs_of_a_mesh_run_on_one():
    with pytest.raises(UsageError, match="the module runs on one device"):
        lower(torch.nn.ReLU(), torch.ones(3), output_type="stablehlo").caller_on_mesh()
