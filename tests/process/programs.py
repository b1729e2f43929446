"""Functions that tests call in processes: this file imports nothing that takes long."""

import subprocess
import sys
from pathlib import Path


def start_sleeper_and_loop(started: str) -> None:
    """Start a process, write its number to ``started``, and loop."""
    child = subprocess.Popen(["sleep", "1000"])
    Path(started).write_text(str(child.pid))
    while True:
        pass


def allocate_in_a_child() -> None:
    """Hold 1 GiB in a process that this one has started."""
    subprocess.run([sys.executable, "-c", "x = bytearray(b'1') * (1 << 30); input()"], check=False)
