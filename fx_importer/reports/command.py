"""The command that repeats a failed stage outside the program it failed in."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from fx_importer.bindings import ir


def command_for(bytecode: Path, pipeline: str) -> str:
    """Return a shell command, to be run in the directory of ``bytecode``, that runs ``pipeline`` on it.

    It is ``torch-mlir-opt`` wherever that can do it. The wheel's build of it knows fewer passes and dialects than the
    wheel's Python bindings; where it lacks one, the command is `fx_importer.pipelines.replay`.
    """
    opt = torch_mlir_opt()
    if _reads(opt, bytecode) and _knows(opt, pipeline):
        tail = f"-pass-pipeline={shlex.quote(pipeline)} -o {os.devnull}"
        return f"{shlex.quote(str(opt))} {bytecode.name} {tail}"
    return shlex.join([sys.executable, "-m", "fx_importer.pipelines.replay", bytecode.name, pipeline])


def torch_mlir_opt() -> Path:
    """Return the program of the wheel that runs passes."""
    return Path(ir.__file__).parent / "_mlir_libs" / "torch-mlir-opt"


def _reads(opt: Path, bytecode: Path) -> bool:
    # Eliding resources keeps the weights from being written anywhere.
    arguments = [bytecode, "--emit-bytecode", "--elide-resource-data-from-bytecode", "-o", os.devnull]
    outcome = _run([opt, *arguments])
    return outcome is not None and outcome.returncode == 0


def _knows(opt: Path, pipeline: str) -> bool:
    # What a pass makes of an empty module does not matter here, only that the text was understood.
    outcome = _run([opt, "-", f"-pass-pipeline={pipeline}"], text="module {}")
    return outcome is not None and "Textual PassPipeline Parser" not in outcome.stderr


def _run(command: list[str | Path], text: str = "") -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
