"""The trace of a compilation: stages, times and failures."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fx_importer.diagnostics import progress
from fx_importer.diagnostics.causes import Cause, Diagnosis, headline
from fx_importer.diagnostics.html import folded
from fx_importer.diagnostics.mlir_diagnostics import Diagnostic, diagnostics_of, reason_of
from fx_importer.diagnostics.observers import Observer, stage_observers, within_stage
from fx_importer.errors import CrashedError, FxImporterError, StageFailed, described
from fx_importer.mlir.bindings import ir

if TYPE_CHECKING:
    from torch.export import ExportedProgram


_LOG = logging.getLogger(__name__)
"""Stages at the level INFO."""

IMPORTED_FUNCTION = "fx-importer-call{"
"""Prefix of the text of a pipeline step that is an importable Python function."""

LOCAL_FUNCTION = "fx-importer-python{"
"""Prefix of the text of a pipeline step that is a Python function of this process, which others cannot import."""


@dataclass
class StageRecord:
    """One stage of a compilation."""

    name: str
    seconds: float = 0.0
    """Wall time."""
    start: float = 0.0
    """When it began, by `time.perf_counter`."""
    failure: Exception | None = None
    snapshot: ir.Operation | None = None
    """The module before the stage, if it failed; while it runs, only if the module cannot be recreated."""
    pipeline: str = ""
    """The pass pipeline of the stage in MLIR's syntax; empty if it has none."""
    causes: tuple[Cause, ...] = ()
    """Unsupported operators, if the stage failed and they are known."""
    remarks: list[str] = field(default_factory=list)
    """Messages about deviations from the usual path."""
    programs: Mapping[str, ExportedProgram] | None = None
    """Programs that a stage before the import produced, by name; kept only while the stage runs."""


Reporter = Callable[["Trace", StageRecord, tuple[Diagnostic, ...]], Path | None]
"""Writes a report of the failed stage and returns its directory, or None if there is nothing to report."""


Investigator = Callable[[ir.Operation], Diagnosis]
"""Finds the unsupported operators of an imported module, and what to try."""


@dataclass
class Trace:
    """The stages of one compilation, in order.

    `stage` times stages, takes snapshots, and converts other exceptions to `StageFailed`.
    """

    reporter: Reporter | None = None
    investigate: Investigator | None = None
    dumps: Observer | None = None
    planned: tuple[str, ...] = ()
    """Names of all stages that will run, as far as known."""
    programs: Mapping[str, ExportedProgram] = field(default_factory=dict)
    """Exported programs by name, once they exist."""
    entering: Callable[[StageRecord], None] | None = None
    """Called with each stage before it runs."""
    stages: list[StageRecord] = field(default_factory=list)
    imported: ir.Operation | None = None
    """The module before the first pass stage."""

    def __repr__(self) -> str:
        return f"<Trace {self.summary()}>"

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled and copied: the stages, without what a compilation of this process needs."""
        return {"stages": [replace(stage, snapshot=None, programs=None) for stage in self.stages]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)

    def _repr_html_(self) -> str:
        return folded(repr(self), self.table())

    def summary(self) -> str:
        """Return the seconds of all stages, and of those that took long: ``1.23 s: export 1.02, decompose 0.15``."""
        total = sum(stage.seconds for stage in self.stages)
        listed = [f"{stage.name} {stage.seconds:.2f}" for stage in self.stages if stage.seconds >= total / 50]
        failed = [f"{stage.name} failed" for stage in self.stages if stage.failure]
        return f"{total:.2f} s" + (f": {', '.join([*listed, *failed])}" if listed or failed else "")

    def table(self) -> str:
        """Return a line for each stage, with its seconds and its share of all, as text."""
        total = sum(stage.seconds for stage in self.stages)
        rows = [
            f"{stage.name:<20} {stage.seconds:8.3f} s {stage.seconds / (total or 1):6.1%}"
            + ("  failed" if stage.failure else "")
            for stage in self.stages
        ]
        return "\n".join([*rows, f"{'all':<20} {total:8.3f} s"])

    def to_chrome(self) -> dict[str, Any]:
        """Return the stages as JSON values in Chrome's trace event format, which Perfetto opens; times in µs."""
        first = min((stage.start for stage in self.stages), default=0.0)
        events = [
            {
                "name": stage.name,
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "ts": (stage.start - first) * 1e6,
                "dur": stage.seconds * 1e6,
            }
            for stage in self.stages
        ]
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    @contextmanager
    def stage(
        self,
        name: str,
        module: ir.Module | None = None,
        *,
        pipeline: str = "",
        recreate: Callable[[], ir.Operation] | None = None,
    ) -> Iterator[StageRecord]:
        """Run the body as the stage ``name``.

        ``recreate`` returns a copy of the current ``module`` for a report. Without it, the module is cloned before a
        ``pipeline``.

        Raises:
            StageFailed: for any exception that is neither an `FxImporterError` nor a warning.
            CrashedError: with stage and report added, if the body raises one.
        """
        record = StageRecord(name, pipeline=pipeline)
        self.stages.append(record)
        asked_for = stage_observers() if self.planned else ()  # not for one of several attempts
        observers = (*([self.dumps] if self.dumps else ()), *asked_for)
        for observer in observers:
            observer.before(self, record, module)
        if module is not None and (self.entering or (pipeline and recreate is None)):
            record.snapshot = module.operation.clone()
        if pipeline:
            self.imported = self.imported or record.snapshot
        if self.entering:
            self.entering(record)
        if self.planned:  # not in one of several attempts
            progress.enter(name)
        start = record.start = time.perf_counter()
        try:
            with within_stage(asked_for if pipeline else observers):  # dumps are of FX passes and of stages
                yield record
        except CrashedError as error:
            record.failure = error
            record.seconds = time.perf_counter() - start
            error.stage = name
            if not (error.pass_name or "").startswith((IMPORTED_FUNCTION, LOCAL_FUNCTION)):
                self._find_causes(record)  # no operator is to blame for the crash of a function
            error.causes = record.causes
            self._take_snapshot(record, recreate)
            error.report = self.reporter(self, record, ()) if self.reporter else None
            raise
        except (FxImporterError, Warning) as error:  # warnings are raised if their filter says so
            record.failure = error
            raise
        except Exception as error:
            record.failure = error
            record.seconds = time.perf_counter() - start
            self._take_snapshot(record, recreate)
            raise self._failed(record, error) from error
        finally:
            if record.failure is None:
                record.seconds = time.perf_counter() - start
                record.snapshot = None
            for observer in observers:
                observer.after(self, record, module)
            record.programs = None
            if self.planned:
                _LOG.info("%s %s, %.3f s", name, "failed" if record.failure else "passed", record.seconds)

    def _take_snapshot(self, record: StageRecord, recreate: Callable[[], ir.Operation] | None) -> None:
        if self.reporter and recreate and record.snapshot is None:
            try:
                record.snapshot = recreate()
            except Exception as problem:  # must not hide the failure
                record.remarks.append(f"the module before the stage could not be recreated: {problem}")

    def not_reached(self) -> tuple[str, ...]:
        """Return the names of the planned stages that did not begin."""
        return self.planned[len(self.stages) :]

    def _failed(self, record: StageRecord, error: Exception) -> StageFailed:
        diagnostics = diagnostics_of(error)
        remarks = self._find_causes(record) if diagnostics else []
        report = self.reporter(self, record, diagnostics) if self.reporter else None
        title = headline(record.causes) if record.causes else ""
        reason = described(record.causes) or reason_of(error)
        lines = [f"stage '{record.name}' failed: {title}".strip(), *(f"  {line}" for line in reason.splitlines())]
        lines += remarks
        if report:
            lines.append(f"reproducer in {report}")
        message = "\n".join(lines)
        return StageFailed(record.name, message, causes=record.causes, diagnostics=diagnostics, report=report)

    def _find_causes(self, record: StageRecord) -> list[str]:
        """Record the unsupported operators. Return suggestions if there are none, and messages about the search."""
        if self.investigate and self.imported:
            progress.enter(f"{record.name} failed: finding the unsupported operators")
            try:
                diagnosis = self.investigate(self.imported)
            except Exception as problem:  # must not hide the failure
                return [f"the unsupported operators could not be determined: {type(problem).__name__}: {problem}"]
            record.causes = diagnosis.causes
            tried = [] if record.causes else [f"  try: {suggestion}" for suggestion in diagnosis.suggestions]
            return [*tried, *filter(None, [diagnosis.remark])]
        return []
