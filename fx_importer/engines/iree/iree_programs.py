"""Compilation by IREE ahead of time, with the machine code of kernels."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fx_importer.engines.compiled_program import CompiledProgram
from fx_importer.engines.iree.engine import C_MODULE, IREE_ENGINE, STATIC, SUFFIXES, VMFB
from fx_importer.engines.iree.iree_compiler import compile_to, input_type_of, prepare
from fx_importer.engines.iree.iree_targets import IreeTarget, iree_target
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_contents import copy_module
from fx_importer.process.scratch import Scratch


def compile_program(
    module: ir.Module, target: str, parameters: Collection[str] = (), kind: str = VMFB
) -> CompiledProgram:
    """Compile ``module``, which does not change, by IREE. Resources named in ``parameters`` stay parameters.

    Raises:
        UsageError: for a target of another form than `iree_target` takes, and a kind that it does not have.
        NotInstalledError: without IREE.
        StageFailed: if IREE cannot compile it, with its errors.
    """
    IREE_ENGINE.check_installed()
    device = iree_target(target)
    _check_kind(kind, device)
    copy = copy_module(module.operation)
    input_type = input_type_of(copy)
    prepare(copy, input_type, device)
    with Scratch() as folder:
        output, kernels, statistics = folder / "module.vmfb", folder / "kernels", folder / "counts.json"
        library = folder / "library.o"
        flags = [
            *_flags(kind, library),
            f"--iree-hal-dump-executable-intermediates-to={kernels}",
            f"--iree-hal-dump-executable-binaries-to={kernels}",
            "--iree-scheduling-dump-statistics-format=json",
            f"--iree-scheduling-dump-statistics-file={statistics}",
        ]
        compile_to(output, copy, input_type, device, parameters, flags)
        counts: dict[str, Any] = json.loads(statistics.read_text())
        files = {path.name: path.read_bytes() for path in sorted(kernels.iterdir())} if kernels.is_dir() else {}
        dispatches = counts["stream-aggregate"]["execution"]["dispatch-count"]
        objects = {path.suffix: path.read_bytes() for path in (library, library.with_suffix(".h")) if path.exists()}
        return CompiledProgram(target, output.read_bytes(), dispatches, files, objects)


def _check_kind(kind: str, target: IreeTarget) -> None:
    if kind not in SUFFIXES:
        raise UsageError(f"compile(kind={kind!r}): IREE compiles to {', '.join(map(repr, SUFFIXES))}")
    if kind != VMFB and not target.is_cpu:
        raise UsageError(
            f"kind={kind!r} is object code for a CPU, and '{target.name}' is a GPU: kind={VMFB!r} has its kernels"
        )
    if kind == VMFB and target.microcontroller:
        raise UsageError(
            f"'{target.name}' is a microcontroller, which loads no code at run time: "
            f"compile('{target.name}', kind={C_MODULE!r}) writes a C module and an object file with the kernels"
        )


def _flags(kind: str, library: Path) -> list[str]:
    """Return IREE's arguments for a kind, whose object file is ``library``."""
    static = [
        "--iree-llvmcpu-link-embedded=false",
        "--iree-llvmcpu-link-static",
        f"--iree-llvmcpu-static-library-output-path={library}",
    ]
    return {VMFB: [], STATIC: static, C_MODULE: ["--output-format=vm-c", *static]}[kind]
