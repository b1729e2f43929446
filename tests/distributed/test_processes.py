"""Meshes over several processes, started by torchrun; effects of late and dead ones on the others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fx_importer.engines import join_processes
from fx_importer.errors import UsageError
from tests.distributed.test_on_devices import needs_xla

pytestmark = pytest.mark.new_interpreter

SCRIPT = str(Path(__file__).with_name("joined_processes.py"))
ENVIRONMENT = {name: text for name, text in os.environ.items() if name != "XLA_FLAGS"} | {
    "PYTHONPATH": str(Path(__file__).parents[2])
}
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", SCRIPT)


def run(*command: str) -> tuple[int, str]:
    ran = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


@needs_xla
def test_a_process_without_others(monkeypatch: pytest.MonkeyPatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not set"):
        join_processes()


@pytest.mark.slow
def test_two_processes_of_four_devices():
    code, text = run(*TORCHRUN, "well")
    assert code == 0, text


@pytest.mark.slow
def test_killed_and_started_again(tmp_path: Path):
    code, text = run(*TORCHRUN, "steps", str(tmp_path))
    assert code == 1
    assert "Signal 9 (SIGKILL)" in text, text
    code, text = run(*TORCHRUN, "steps", str(tmp_path))
    assert code == 0, text
    assert "ended after 0" not in text, text
    assert torch.load(tmp_path / "held.pt")["at"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "how, messages",
    [
        ("late", ["process 0 of 2 has waited 5 s for 1 in vain: they have not called join_processes"]),
        ("dies", ["exitcode: -9", "Signal 9 (SIGKILL)"]),
        ("differs", ["the processes of the mesh pass different values"]),
    ],
)
def test_failures_name_the_process(how: str, messages: list[str]):
    start = time.monotonic()
    code, text = run(*TORCHRUN, how)
    assert code == 1
    assert all(message in text for message in messages), text
    assert time.monotonic() - start < 120
