"""A process that ends with its parent, whatever ends that: the first thing that a child process runs.

To start fast, this file imports nothing but the standard library. `ending_with_parent` gives a command that runs it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import sys
import threading
from collections.abc import Sequence
from os import PathLike

_PR_SET_PDEATHSIG = 1


def end_with_parent(lifeline: int, *, parent_thread_stays: bool = True) -> None:
    """Have this process end when its parent ends, on Linux even in native code or an endless loop.

    Args:
        lifeline: the reading end of a pipe whose writing end only the parent holds, which writes nothing.
        parent_thread_stays: whether the thread that started this process lives as long as this process should: Linux
            then also ends it where a fork of the parent has inherited the writing end.
    """
    if sys.platform == "linux":
        signal.signal(signal.SIGIO, signal.SIG_DFL)  # which ends a process
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)  # SIGIO when the writing end is closed
        if parent_thread_stays:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
    if select.select([lifeline], [], [], 0)[0]:  # the parent ended before
        os._exit(1)


def ending_with_parent(command: Sequence[str | PathLike[str]]) -> list[str | PathLike[str]]:
    """Return a command that becomes ``command``, which then ends with the parent: its standard input is the lifeline.

    The standard input is the reading end of a pipe, as for `end_with_parent`.
    """
    return [sys.executable, "-I", "-S", __file__, *command]


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent(sys.stdin.fileno())
    os.execvp(sys.argv[1], sys.argv[1:])
