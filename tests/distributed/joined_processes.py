"""A script of several processes: ``torchrun --nproc-per-node 2 joined_processes.py HOW``.

Both ways to a program of eight devices, four in each of two processes, beside eager. ``HOW`` says what goes wrong.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import init_device_mesh

from fx_importer import lower
from fx_importer.distributed import fake_process_group
from fx_importer.engines import join_processes
from fx_importer.errors import UsageError

HOW, RANK = sys.argv[1], int(os.environ["RANK"])


def whole() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    x = torch.randn(8, 16)
    plan = {"0.*": {"tp": 0}, "2.weight": {"tp": 1}, "input": {"dp": 0}, "output": {"dp": 0}}
    call = lower(model, x, output_type="stablehlo", weights="args", mesh="dp=2,tp=4", plan=plan).caller(backend="xla")
    torch.testing.assert_close(call(x), model(x))
    if HOW == "dies" and RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW in ("dies", "differs"):
        print(call(x + RANK))


class Steps(torch.nn.Module):
    """Weights that each call moves, which are divided among all devices."""

    def __init__(self):
        super().__init__()
        self.held: torch.Tensor
        self.register_buffer("held", torch.arange(16.0))

    def forward(self, x):
        self.held.add_(x)
        return self.held.sum()


def of_steps(folder: Path) -> None:
    """Make four steps, each of which process 0 saves, from where a process that was killed has left off."""
    plan, saved = {"held": {"dp": 0}}, folder / "held.pt"
    state = torch.load(saved) if saved.exists() else {"at": 0, "held": torch.arange(16.0)}
    made = lower(Steps(), torch.ones(16), output_type="stablehlo", mutation="functional", mesh="dp=8", plan=plan)
    call = made.caller({"held": state["held"]}, backend="xla")
    for at in range(state["at"], 4):
        total = call(torch.full((16,), float(at)))
        held = call.state["held"]
        assert float(total) == float(held.sum()) == 120 + 16 * sum(range(at + 1))
        if RANK == 0:
            torch.save({"at": at + 1, "held": held}, folder / "next.pt")
            (folder / "next.pt").rename(saved)
        if at == 1 and state["at"] == 0 and RANK == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    print("ended after", state["at"])


class Mean(torch.nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.mesh = mesh

    def forward(self, x):
        return collectives.all_reduce(x, "avg", (self.mesh, 0))


def of_each_rank() -> None:
    with fake_process_group(8):
        mesh = init_device_mesh("cpu", (8,), mesh_dim_names=("dp",))
        call = lower(Mean(mesh), torch.ones(2), output_type="stablehlo", mesh=mesh).caller_on_mesh()
    found = call([(torch.full((2,), float(4 * RANK + device)),) for device in range(4)])
    assert [each.tolist() for each in found] == [[3.5, 3.5]] * 4


try:
    if HOW == "late" and RANK == 1:
        time.sleep(60)
    join_processes(4, timeout=5 if HOW == "late" else 60)
    if HOW == "steps":
        of_steps(Path(sys.argv[2]))
    else:
        whole()
        of_each_rank()
except UsageError as error:
    sys.exit(f"error: {error}")
