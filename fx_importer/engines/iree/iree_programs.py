"""Programs that IREE compiled ahead of time, with the machine code of their kernels."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fx_importer.engines.iree.iree_compiler import compile_to, input_type_of, prepare
from fx_importer.engines.iree.iree_targets import iree_target
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_contents import copy_module
from fx_importer.process.optional_packages import check_installed

_TEXTS = (".ptx", ".rocmasm", ".metal", ".s")
_MATRIX = re.compile(r"^\s*(?:mma\.sync|wgmma\.mma_async|v_(?:mfma|wmma)_)", re.MULTILINE)
_VECTOR = re.compile(
    r"^\s*(?:ld\.\S*\.v[248]\.|global_load_(?:dwordx[24]|b(?:64|128))|(?:buffer|flat)_load_(?:dwordx[24]|b(?:64|128)))",
    re.MULTILINE,
)


@dataclass(frozen=True)
class CompiledProgram:
    """A program for IREE's runtime."""

    target: str
    code: bytes = dataclasses.field(repr=False)
    """The contents of a .vmfb file."""
    dispatches: int
    """Launches of kernels in all functions."""
    kernels: Mapping[str, bytes] = dataclasses.field(repr=False)
    """Files by name: PTX, the assembly of LLVM, Metal or SPIR-V, and what else IREE writes."""

    @property
    def matrix_instructions(self) -> int:
        """The number of instructions that multiply matrices (tensor cores), in the text of kernels; 0 for SPIR-V."""
        return self._count(_MATRIX)

    @property
    def vector_loads(self) -> int:
        """The number of loads of two or more elements, in the text of kernels; 0 for SPIR-V."""
        return self._count(_VECTOR)

    def _count(self, form: re.Pattern[str]) -> int:
        texts = (data.decode() for name, data in self.kernels.items() if name.endswith(_TEXTS))
        return sum(len(form.findall(text)) for text in texts)

    def save(self, path: Path, kernels: Path | None = None) -> None:
        """Write the code to ``path``, and the files of the kernels to the directory ``kernels``, if given."""
        path.write_bytes(self.code)
        if kernels is not None:
            kernels.mkdir(parents=True, exist_ok=True)
            for name, data in self.kernels.items():
                (kernels / name).write_bytes(data)


def compile_program(module: ir.Module, target: str, parameters: Collection[str] = ()) -> CompiledProgram:
    """Compile ``module``, which does not change, by IREE. Resources named in ``parameters`` stay parameters.

    Raises:
        UsageError: for a target of another form than `iree_target` takes.
        NotInstalledError: without IREE.
        StageFailed: if IREE cannot compile it, with its errors.
    """
    check_installed("iree")
    device = iree_target(target)
    copy = copy_module(module.operation)
    kind = input_type_of(copy)
    prepare(copy, kind, device)
    with tempfile.TemporaryDirectory(prefix="fx-importer-") as folder:
        output, kernels, statistics = Path(folder, "module.vmfb"), Path(folder, "kernels"), Path(folder, "counts.json")
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
