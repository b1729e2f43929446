"""TOSA modules as flatbuffers, by Arm's ``tosa-opt``."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from fx_importer.errors import CrashedError, UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.process.one_shot import run_command


def write_flatbuffer(module: ir.Module, file: Path, target: str) -> None:
    """Validate ``module`` for ``target``, in the syntax of ``--tosa-attach-target``, and write it to ``file``.

    Raises:
        UsageError: with all errors of the validator.
        CrashedError: if ``tosa-opt`` fails in another way.
    """
    text = file.with_suffix(".mlir")
    with text.open("wb") as stream:
        module.operation.print(file=stream, binary=True)
    command = [
        str(metadata.distribution("tosa-tools").locate_file("bin/tosa-opt")),
        str(text),
        f"--tosa-attach-target={target}",
        "--tosa-validate=strict-op-spec-alignment",
        "--tosa-serialize",
        f"--tosa-flatbuffer-filename={file}",
        *("-o", os.devnull),
    ]
    try:
        run_command("tosa-opt", command)
    except CrashedError as error:
        errors = [line.partition("error: ")[2] for line in error.output.splitlines() if " error: " in line]
        if error.signal or not errors:
            raise
        raise UsageError("\n  ".join([f"the module is not TOSA of {target}:", *errors])) from error
    finally:
        text.unlink()
