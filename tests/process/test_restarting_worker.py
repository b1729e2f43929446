"""A restarting worker starts its process on demand, keeps it, and replaces it after a crash."""

import pytest

from fx_importer import CrashedError
from fx_importer.process.restarting_worker import RestartingWorker
from fx_importer.process.worker import Child

ANSWERS = """
import os

def exit_or_pid(note):
    return lambda request: os._exit(1) if request == "exit" else os.getpid()
"""


def test_process_is_replaced_only_after_a_crash(tmp_path, monkeypatch):
    (tmp_path / "answers_of_a_test.py").write_text(ANSWERS)
    monkeypatch.syspath_prepend(tmp_path)
    worker = RestartingWorker(lambda: Child("answers_of_a_test:exit_or_pid"))
    first = worker.running()
    pid = first.ask("pid", "pid")
    assert worker.running() is first
    with pytest.raises(CrashedError):
        first.ask("exit", "exit")
    second = worker.running()
    assert second is not first
    assert second.ask("pid", "pid") != pid
    with pytest.raises(CrashedError, match="had ended before"):
        first.ask("pid", "pid")
