"""Meshes over several processes, which a launcher starts; what late and dead ones do to the others."""

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
from fx_importer.process.launcher import launch
from tests.distributed.test_on_devices import needs_xla

pytestmark = pytest.mark.new_interpreter

SCRIPT = str(Path(__file__).with_name("joined_processes.py"))
ENVIRONMENT = {name: text for name, text in os.environ.items() if name != "XLA_FLAGS"} | {
    "PYTHONPATH": str(Path(__file__).parents[2])
}
LAUNCH = (sys.executable, "-m", "fx_importer", "launch", "--processes", "2", "--time-limit", "300", SCRIPT)
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", SCRIPT)


def run(*command: str) -> tuple[int, str]:
    ran = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def in_python(code: str) -> list[str]:
    return [sys.executable, "-c", f"import os, time; rank = int(os.environ['RANK']); {code}"]


def test_the_first_failure_ends_all():
    start = time.monotonic()
    assert launch(in_python("assert os.environ['WORLD_SIZE'] == '3'"), 3) is None
    failed = launch(in_python("rank == 1 and os._exit(3); time.sleep(60)"), 3)
    assert failed == "process 1 of 3 ended with the exit code 3, and the others were ended"
    assert launch(in_python("rank or os.kill(os.getpid(), 9)"), 1) == "process 0 of 1 ended by SIGKILL"
    assert (
        launch(in_python("time.sleep(60)"), 2, time_limit=0.5) == "the processes did not end in 0.5 s, and were ended"
    )
    assert time.monotonic() - start < 40


@needs_xla
def test_a_process_without_others(monkeypatch: pytest.MonkeyPatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not set"):
        join_processes()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [LAUNCH, TORCHRUN], ids=["launch", "torchrun"])
def test_two_processes_of_four_devices(launcher: tuple[str, ...]):
    code, text = run(*launcher, "well")
    assert code == 0, text


@pytest.mark.slow
def test_killed_and_started_again(tmp_path: Path):
    code, text = run(*LAUNCH, "steps", str(tmp_path))
    assert code == 2
    assert "process 1 of 2 ended by SIGKILL" in text, text
    code, text = run(*LAUNCH, "steps", str(tmp_path))
    assert code == 0, text
    assert "ended after 0" not in text, text
    assert torch.load(tmp_path / "held.pt")["at"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "how, sentences",
    [
        ("late", ["process 0 of 2 has waited 5 s for 1 in vain: they have not called join_processes"]),
        ("dies", ["process 1 of 2 ended by SIGKILL, and the others were ended"]),
        ("differs", ["the processes of the mesh pass different values"]),
    ],
)
def test_what_goes_wrong_is_said(how: str, sentences: list[str]):
    start = time.monotonic()
    code, text = run(*LAUNCH, how)
    assert code == 2
    assert all(each in text for each in sentences), text
    assert time.monotonic() - start < 120
