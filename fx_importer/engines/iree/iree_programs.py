"""Compilation by IREE ahead of time, with the machine code of kernels."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from fx_importer.engines.compiled_program import CompiledProgram
from fx_importer.engines.iree.engine import IREE_ENGINE
from fx_importer.engines.iree.iree_compiler import compile_to, input_type_of, prepare
from fx_importer.engines.iree.iree_targets import iree_target
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_contents import copy_module
from fx_importer.process.scratch import Scratch


def compile_program(module: ir.Module, target: str, parameters: Collection[str] = ()) -> CompiledProgram:
    """Compile ``module``, which does not change, by IREE. Resources named in ``parameters`` stay parameters.

    Raises:
        UsageError: for a target of another form than `iree_target` takes.
        NotInstalledError: without IREE.
        StageFailed: if IREE cannot compile it, with its errors.
    """
    IREE_ENGINE.check_installed()
    device = iree_target(target)
    copy = copy_module(module.operation)
    kind = input_type_of(copy)
    prepare(copy, kind, device)
    with Scratch() as folder:
        output, kernels, statistics = folder / "module.vmfb", folder / "kernels", folder / "counts.json"
        flags = [
            f"--iree-hal-dump-executable-intermediates-to={kernels}",
            f"--iree-hal-dump-executable-binaries-to={kernels}",
            "--iree-scheduling-dump-statistics-format=json",
            f"--iree-scheduling-dump-statistics-file={statistics}",
        ]
        compile_to(output, copy, kind, device, parameters, flags)
        counts: dict[str, Any] = json.loads(statistics.read_text())
        files = {each.name: each.read_bytes() for each in sorted(kernels.iterdir())} if kernels.is_dir() else {}
        dispatches = counts["stream-aggregate"]["execution"]["dispatch-count"]
        return CompiledProgram(target, output.read_bytes(), dispatches, files)
