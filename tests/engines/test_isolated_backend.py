"""The worker process of a backend ends when its parent is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import torch
from fx_importer import lower
from fx_importer.engines import IsolatedBackend

class Endless(torch.nn.Module):
    def forward(self, x):
        return torch.while_loop(lambda x: x.sum() < 1e30, lambda x: (x + 1,), (x,))[0]

run = lower(Endless(), torch.ones(2), output_type="linalg").caller(backend=(backend := IsolatedBackend("jit")))
print(backend.worker.running().pid, flush=True)
run(torch.ones(2))
"""


def stat(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def running(process: int) -> bool:
    try:
        return stat(process)[0] != "Z"
    except FileNotFoundError:
        return False


def cpu_time(process: int) -> float:
    return int(stat(process)[11]) / os.sysconf("SC_CLK_TCK")


@pytest.mark.new_interpreter
@pytest.mark.slow
def test_worker_ends_during_native_code():
    parent = subprocess.Popen([sys.executable, "-W", "ignore", "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    before = cpu_time(child)
    while cpu_time(child) < before + 1:  # it computes, without end
        assert running(child)
        time.sleep(0.1)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    for _ in range(100):
        if not running(child):
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("it still runs")
