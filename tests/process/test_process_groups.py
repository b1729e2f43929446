"""Limits and ends of processes that an isolated process has started."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fx_importer.errors import CrashedError
from fx_importer.options import Limits
from fx_importer.process.one_shot import run_isolated
from tests.process.programs import allocate_in_a_child, start_sleeper_and_loop


def runs(process: int) -> bool:
    """Return whether a process is there and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.new_interpreter
def test_processes_of_a_process_end_with_it(tmp_path: Path):
    started = tmp_path / "started"
    with pytest.raises(CrashedError, match="time limit of 5 s"):
        run_isolated("it", start_sleeper_and_loop, started, limits=Limits(5))
    sleeper = int(started.read_text())
    end = time.monotonic() + 10
    while runs(sleeper) and time.monotonic() < end:
        time.sleep(0.05)
    assert not runs(sleeper)


@pytest.mark.new_interpreter
def test_memory_of_processes_of_a_process_counts():
    with pytest.raises(CrashedError, match="memory limit of 512 MiB"):
        run_isolated("it", allocate_in_a_child, limits=Limits(60, 1 << 29))
