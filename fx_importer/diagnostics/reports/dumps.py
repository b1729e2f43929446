"""Dumps of programs and modules before and after stages, with the time of each stage."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from fx_importer.diagnostics.observers import Observer
from fx_importer.diagnostics.reports.report_contents import readable
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.options import RunOptions


class Dumps(Observer):
    """Files in a new directory: ``03-stablehlo.before.mlir``, ``03-stablehlo.after.mlir``, ``stages.json``."""

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

    def before(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        if module is not None and record.pipeline:
            self._write(trace, record, "before", module)

    def after(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        if record.failure is None:
            self._write(trace, record, "after", module)
        stages = [
            {"name": each.name, "outcome": "failed" if each.failure else "passed", "seconds": each.seconds}
            for each in trace.stages
        ]
        (self.directory / "stages.json").write_text(json.dumps(stages, indent=2), encoding="utf-8")

    def _write(self, trace: Trace, record: StageRecord, when: str, module: ir.Module | None) -> None:
        if not self._wanted.search(record.name):
            return
        stage = re.sub(r"[^A-Za-z0-9]+", "-", record.name).strip("-")
        name = f"{len(trace.stages):02}-{stage}.{when}"
        if module is not None:
            (self.directory / f"{name}.mlir").write_text(readable(module.operation), encoding="utf-8")
        for function, program in (record.programs or {}).items():
            (self.directory / f"{name}.{function}.fx.txt").write_text(str(program), encoding="utf-8")
