"""The commands that repeat a failure outside the program it came up in. None of them holds a path."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fx_importer.mlir.bindings import ir

OPT = "torch-mlir-opt"


def stage_command(bytecode: Path, pipeline: str) -> str:
    """Return a shell command, to be run in the directory of ``bytecode``, that runs ``pipeline`` on it.

    It is ``torch-mlir-opt`` wherever that can do it. The wheel's build of it knows fewer passes and dialects than the
    wheel's Python bindings; where it lacks one, the command is `fx_importer.pipelines.replay`.
    """
    if _reads(bytecode) and _knows(pipeline):
        return shlex.join([OPT, bytecode.name, f"-pass-pipeline={pipeline}", "-o", os.devnull])
    return shlex.join(["python", "-m", "fx_importer.pipelines.replay", bytecode.name, pipeline])


def import_command(program: str, options: Mapping[str, Any]) -> str:
    """Return the command that lowers ``program``, a file, with ``options`` as `spelled` gives them."""
    arguments = ["fx-importer", "import", program]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            arguments.append(flag if value else f"--no-{flag[2:]}")
        else:
            for each in value if isinstance(value, list) else [value]:
                arguments += [flag, str(each)]
    return shlex.join([*arguments, "-o", "out.mlirbc"])


def torch_mlir_opt() -> Path:
    """Return the program of the wheel that runs passes."""
    return Path(ir.__file__).parent / "_mlir_libs" / OPT


def _reads(bytecode: Path) -> bool:
    # Eliding resources keeps the weights from being written anywhere.
    arguments = [bytecode, "--emit-bytecode", "--elide-resource-data-from-bytecode", "-o", os.devnull]
    outcome = _run([torch_mlir_opt(), *arguments])
    return outcome is not None and outcome.returncode == 0


def _knows(pipeline: str) -> bool:
    # What a pass makes of an empty module does not matter here, only that the text was understood.
    outcome = _run([torch_mlir_opt(), "-", f"-pass-pipeline={pipeline}"], text="module {}")
    return outcome is not None and "Textual PassPipeline Parser" not in outcome.stderr


def _run(command: list[str | Path], text: str = "") -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
