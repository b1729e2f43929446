"""Dumps of programs and modules before and after stages and FX passes, with the time of each stage."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fx_importer.diagnostics.observers import Observer
from fx_importer.diagnostics.reports.report_contents import readable
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.output_files import save_text
from fx_importer.options import RunOptions

if TYPE_CHECKING:
    from torch.export import ExportedProgram


class Dumps(Observer):
    """Files in a new directory: ``03-stablehlo.before.mlir``, ``03-stablehlo.after.mlir``, ``stages.json``.

    FX passes have files like ``02-decompositions.04-resolve-strides.after.main.fx.txt``.
    """

    def __init__(self, running: RunOptions):
        """Create the directory. Raises `UsageError` if it cannot be created."""
        if running.directory is None:
            raise UsageError("dump_ir needs a directory: pass dump_dir=, or set FX_IMPORTER_DUMP_DIR")
        self._wanted = re.compile(running.dump_ir or "")
        try:
            running.directory.mkdir(parents=True, exist_ok=True)
            self.directory = Path(tempfile.mkdtemp(prefix="fx-importer-ir-", dir=running.directory))
        except OSError as error:
            raise UsageError(f"dump_ir: cannot write to '{running.directory}': {error}") from None
        self._stage = ""
        self._passes = 0

    def before(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        self._stage, self._passes = f"{len(trace.stages):02}-{_file_name(record.name)}", 0
        if module is not None and record.pipeline:
            self._write(record, "before", module)

    def after(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        if record.failure is None:
            self._write(record, "after", module)
        stages = [
            {"name": stage.name, "outcome": "failed" if stage.failure else "passed", "seconds": stage.seconds}
            for stage in trace.stages
        ]
        save_text(json.dumps(stages, indent=2), self.directory / "stages.json")

    def before_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        self._passes += 1
        if self._wanted.search(name):
            self._write_programs(f"{self._stage}.{self._passes:02}-{_file_name(name)}.before", programs)

    def after_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        if self._wanted.search(name):
            self._write_programs(f"{self._stage}.{self._passes:02}-{_file_name(name)}.after", programs)

    def _write(self, record: StageRecord, when: str, module: ir.Module | None) -> None:
        if not self._wanted.search(record.name):
            return
        if module is not None:
            save_text(readable(module.operation), self.directory / f"{self._stage}.{when}.mlir")
        self._write_programs(f"{self._stage}.{when}", record.programs or {})

    def _write_programs(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        for function, program in programs.items():
            save_text(str(program), self.directory / f"{name}.{function}.fx.txt")


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")
