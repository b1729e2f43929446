"""Shell commands that reproduce a failure, without absolute paths."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fx_importer.mlir.bindings import torch_mlir_opt
from fx_importer.process.one_shot import output_of

OPT = "torch-mlir-opt"


def stage_command(bytecode: Path, pipeline: str) -> str:
    """Return a shell command that runs ``pipeline`` on ``bytecode``, in the directory of that file.

    It is ``torch-mlir-opt`` if that has all passes and dialects; the wheel's build has fewer than its Python bindings.
    Otherwise it is `fx_importer.pipelines.replay`.
    """
    if _reads(bytecode) and _knows(pipeline):
        return shlex.join([OPT, bytecode.name, f"-pass-pipeline={pipeline}", "-o", os.devnull])
    return shlex.join(["python", "-m", "fx_importer.pipelines.replay", bytecode.name, pipeline])


def import_command(program: str, options: Mapping[str, Any]) -> str:
    """Return the command that lowers the file ``program`` with ``options``, as `option_values.spelled` returns them."""
    arguments = ["fx-importer", "import", program]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            arguments.append(flag if value else f"--no-{flag[2:]}")
        else:
            for each in value if isinstance(value, list) else [value]:
                arguments += [flag, str(each)]
    return shlex.join([*arguments, "-o", "out.mlirbc"])


def _reads(bytecode: Path) -> bool:
    # Elided resources, so that no weights are written.
    arguments = [bytecode, "--emit-bytecode", "--elide-resource-data-from-bytecode", "-o", os.devnull]
    outcome = _run([torch_mlir_opt(), *arguments])
    return outcome is not None and outcome.returncode == 0


def _knows(pipeline: str) -> bool:
    # Only whether the pipeline can be parsed matters here.
    outcome = _run([torch_mlir_opt(), os.devnull, f"-pass-pipeline={pipeline}"])
    return outcome is not None and "Textual PassPipeline Parser" not in outcome.stderr


def _run(command: list[str | Path]) -> subprocess.CompletedProcess[str] | None:
    try:
        return output_of(command, 60)
    except (OSError, subprocess.TimeoutExpired):
        return None
