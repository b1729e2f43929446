"""Starting a command in several processes, as ``torchrun`` does on one machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""


def launch(command: Sequence[str], processes: int, *, time_limit: float | None = None) -> str | None:
    """Run ``command`` in ``processes`` processes, with the environment variables of ``torchrun``, until all have ended.

    When one fails, the others are ended, since they would wait for it.

    Args:
        command: the program and its arguments.
        processes: their number, ``WORLD_SIZE``.
        time_limit: seconds after which all are ended.

    Returns:
        None if all have ended with the exit code 0, or a sentence that says which has failed first.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    common = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(processes):
            environment = {**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            started.append(subprocess.Popen(command, env=environment))
        return _first_failure(started, time_limit)
    finally:
        _end(started)


def _first_failure(started: Sequence[subprocess.Popen[bytes]], time_limit: float | None) -> str | None:
    with ThreadPoolExecutor(len(started)) as threads:
        waiting = {threads.submit(each.wait): rank for rank, each in enumerate(started)}
        pending = set(waiting)
        try:
            while pending:
                ended, pending = wait(pending, time_limit, FIRST_COMPLETED)
                if not ended:
                    return f"the processes did not end in {time_limit:g} s, and were ended"
                for each in ended:
                    if code := each.result():
                        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with the exit code {code}"
                        others = ", and the others were ended" if pending else ""
                        return f"process {waiting[each]} of {len(started)} ended {how}{others}"
            return None
        finally:
            _end(started)


def _end(started: Sequence[subprocess.Popen[bytes]]) -> None:
    running = [each for each in started if each.poll() is None]
    for each in running:
        each.terminate()
    for each in running:
        try:
            each.wait(GRACE)
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()
