"""Ctrl-C in a command."""

from __future__ import annotations

import io
import os
import signal
import sys

import pytest

from fx_importer.cli.interruption import INTERRUPTED, interruptible


def test_closed_streams_do_not_change_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    if not (child := os.fork()):
        try:
            with interruptible("import"):
                os.kill(os.getpid(), signal.SIGINT)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == INTERRUPTED
