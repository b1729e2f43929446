"""Temporary directories: removed with their object, and after SIGKILL; a full disk is an error of this package."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fx_importer.errors import DiskFullError
from fx_importer.mlir.output_files import atomic_directory, atomic_file
from fx_importer.process import scratch as scratch_module
from fx_importer.process.scratch import SCRATCH, Scratch, full_disk_errors


def wait_until_empty(folder: Path) -> None:
    end = time.monotonic() + 10
    while any(folder.iterdir()) and time.monotonic() < end:
        time.sleep(0.01)
    assert not list(folder.iterdir())


def test_directory_ends_with_its_object(tmp_path, monkeypatch):
    monkeypatch.setenv(SCRATCH, str(tmp_path))
    scratch = Scratch()
    assert list(tmp_path.iterdir()) == [scratch.path]
    del scratch
    gc.collect()
    with Scratch() as folder:
        (folder / "file").touch()
    assert not list(tmp_path.iterdir())


def test_full_disk_is_an_error_of_this_package(tmp_path, monkeypatch):
    monkeypatch.setenv(SCRATCH, str(tmp_path))
    for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        with pytest.raises(DiskFullError, match=f"{tmp_path}.*{os.strerror(number)}.*set TMPDIR"), Scratch():
            raise OSError(number, os.strerror(number))
    with pytest.raises(FileNotFoundError), full_disk_errors():
        Path(tmp_path, "missing").read_text()
    monkeypatch.setenv(SCRATCH, str(tmp_path / "missing"))
    with pytest.raises(DiskFullError, match="No such file or directory"):
        Scratch()


def test_fork_does_not_remove_the_directory_of_its_parent(tmp_path, monkeypatch):
    monkeypatch.setenv(SCRATCH, str(tmp_path))
    scratch = Scratch()
    child = os.fork()
    if not child:
        scratch.__exit__(None, None, None)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert scratch.path.is_dir()


@pytest.mark.parametrize("whole_group", [False, True])
def test_killed_process_leaves_no_directory(tmp_path, monkeypatch, whole_group):
    monkeypatch.setattr(scratch_module, "_pipe", None)  # a remover of the child's own
    monkeypatch.delenv(SCRATCH, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        scratch = Scratch()
        (scratch.path / "module.mlirbc").touch()
        with atomic_directory(tmp_path / "reduced"), atomic_file(tmp_path / "model.mlir"):
            os.write(writing, b"ready")
            signal.pause()
    os.read(reading, 5)
    os.close(reading)
    os.close(writing)
    assert len(list(tmp_path.iterdir())) == 3
    (os.killpg if whole_group else os.kill)(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until_empty(tmp_path)


@pytest.mark.new_interpreter
def test_remover_is_silent_and_ends_with_the_process(tmp_path):
    program = "from fx_importer.process.scratch import Scratch; s = Scratch(); (s.path / 'file').touch()"
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert not list(tmp_path.iterdir())
