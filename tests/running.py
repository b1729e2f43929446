"""Runs scripts as `python` would, each in a fork of a process that has imported torch and this package already."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "fx_importer", "fx_importer.api.lower", "tests.running"])


def run_script(script: Path, folder: Path, environment: Mapping[str, str]) -> CompletedProcess[str]:
    """Run ``script`` in ``folder``, with these variables too, and return what it printed and its exit code."""
    out, err = folder / "stdout", folder / "stderr"
    process = _CONTEXT.Process(target=_be, args=(str(script), str(folder), dict(environment), str(out), str(err)))
    process.start()
    process.join()
    assert process.exitcode is not None
    return CompletedProcess([str(script)], process.exitcode, out.read_text(), err.read_text())


def _be(script: str, folder: str, environment: dict[str, str], out: str, err: str) -> None:
    for stream, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    os.chdir(folder)
    os.environ.update(environment)
    sys.argv, sys.path[0:0] = [script], [str(Path(script).parent)]
    runpy.run_path(script, run_name="__main__")
