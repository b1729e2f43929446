"""A child process ends with its parent."""

import os
import signal
import subprocess
import time
from pathlib import Path

from fx_importer.process.child_process import child_environment, python_command

FORKS = """
import os, time
from fx_importer.process.parent_watchdog import end_with_parent
lifeline, held = os.pipe()
child = os.fork()
if child == 0:
    os.close(held)
    end_with_parent(lifeline)
    print(os.getpid(), flush=True)
    while True:
        pass
time.sleep(60)
"""


def test_fork_ends_with_its_parent():
    with subprocess.Popen(python_command(FORKS), env=child_environment(), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    for _ in range(100):
        status = Path(f"/proc/{child}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("it still runs")
