"""A restarting worker starts its process on demand, keeps it, and replaces it after a crash."""

import gc
from pathlib import Path

import pytest

from fx_importer import CrashedError
from fx_importer.process.worker import Child, RestartingWorker

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


SCRATCH_OF_A_TEST = """
import os
from fx_importer.process.scratch import Scratch

held = []

def path_or_exit(note):
    def answer(request):
        if request == "exit":
            os._exit(1)
        held.append(Scratch())
        return held[-1].path
    return answer
"""


@pytest.mark.parametrize("crashes", [False, True])
def test_temporary_directories_of_a_process_end_with_it(crashes, tmp_path, monkeypatch):
    (tmp_path / "scratch_of_a_test.py").write_text(SCRATCH_OF_A_TEST)
    monkeypatch.syspath_prepend(tmp_path)
    child = Child("scratch_of_a_test:path_or_exit")
    path: Path = child.ask("path", "path")
    (path / "file").touch()
    if crashes:
        with pytest.raises(CrashedError):
            child.ask("exit", "exit")
    else:
        del child  # its process is killed: it removes nothing itself
        gc.collect()
    assert not path.parent.exists()
