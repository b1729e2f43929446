"""The record of a compilation: what ran, how long it took, and what failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fx_importer.diagnostics import progress
from fx_importer.diagnostics.causes import Cause, headline
from fx_importer.diagnostics.mlir_diagnostics import Diagnostic, diagnostics_of, reason_of
from fx_importer.errors import CrashedError, FxImporterError, StageFailed
from fx_importer.mlir.bindings import ir

if TYPE_CHECKING:
    from torch.export import ExportedProgram


IMPORTED = "fx-importer-call{"
"""How the text of a step begins that is a Python function of a module."""

HERE = "fx-importer-python{"
"""How the text of a step begins that is a Python function of this process alone: no other can read it."""


@dataclass
class StageRecord:
    """One stage of a compilation."""

    name: str
    seconds: float = 0.0
    """Wall time."""
    failure: Exception | None = None
    snapshot: ir.Operation | None = None
    """The module as it was before the stage, where it failed; while it runs, only if nothing else can make it again."""
    pipeline: str = ""
    """The pass pipeline of the stage, in MLIR's syntax; empty where the stage runs none."""
    causes: tuple[Cause, ...] = ()
    """Of a failure: the operators that were refused, where that is known."""
    remarks: list[str] = field(default_factory=list)
    """What took another way than the usual one, and why."""
    programs: Mapping[str, ExportedProgram] | None = None
    """What the stage made before there was a module, by name; kept only while the stage runs."""


Reporter = Callable[["Trace", StageRecord, tuple[Diagnostic, ...]], Path | None]
"""Writes a report of the failed stage and returns its directory; returns None where there is nothing to report."""


class Dumps(Protocol):
    """Writes down what is before and after stages."""

    def before(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        """Called right before a stage; ``module`` is what it takes, where that is one."""
        ...

    def after(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        """Called when a stage has ended, with the module as it left it; ``record.failure`` says whether it failed."""
        ...


Investigator = Callable[[ir.Operation], tuple[Cause, ...]]
"""Finds the operators of a module, as it was imported, that cannot be lowered."""


@dataclass
class Trace:
    """The stages of one compilation, in order.

    ``stage`` is the one place that times, takes snapshots, and turns a foreign exception into `StageFailed`.
    """

    reporter: Reporter | None = None
    investigate: Investigator | None = None
    dumps: Dumps | None = None
    planned: tuple[str, ...] = ()
    """The names of all stages that are to run, as far as they are known."""
    programs: Mapping[str, ExportedProgram] = field(default_factory=dict)
    """What was exported, by name, as soon as it is."""
    entering: Callable[[StageRecord], None] | None = None
    """Told of each stage right before it runs."""
    stages: list[StageRecord] = field(default_factory=list)
    imported: ir.Operation | None = None
    """The module as it was before the first stage of passes."""

    @contextmanager
    def stage(
        self,
        name: str,
        module: ir.Module | None = None,
        *,
        pipeline: str = "",
        again: Callable[[], ir.Operation] | None = None,
    ) -> Iterator[StageRecord]:
        """Run the body as the stage ``name``.

        ``again`` makes ``module`` as it is now, for a report. Without it, a snapshot is taken before a ``pipeline``: a
        clone, never text.

        Raises:
            StageFailed: for any exception that is not ours.
            CrashedError: with the stage and a report, if it comes out of the body.
        """
        record = StageRecord(name, pipeline=pipeline)
        self.stages.append(record)
        if self.dumps:
            self.dumps.before(self, record, module)
        if module is not None and (self.entering or (pipeline and again is None)):
            record.snapshot = module.operation.clone()
        if pipeline:
            self.imported = self.imported or record.snapshot
        if self.entering:
            self.entering(record)
        if self.planned:  # or it is one of many attempts
            progress.enter(name)
        start = time.perf_counter()
        try:
            yield record
        except CrashedError as error:
            record.failure = error
            record.seconds = time.perf_counter() - start
            error.stage = name
            self._find_causes(record)
            error.causes = record.causes
            self._take_snapshot(record, again)
            error.report = self.reporter(self, record, ()) if self.reporter else None
            raise
        except FxImporterError as error:
            record.failure = error
            raise
        except Exception as error:
            record.failure = error
            record.seconds = time.perf_counter() - start
            self._take_snapshot(record, again)
            raise self._failed(record, error) from error
        finally:
            if record.failure is None:
                record.seconds = time.perf_counter() - start
                record.snapshot = None
            if self.dumps:
                self.dumps.after(self, record, module)
            record.programs = None

    def _take_snapshot(self, record: StageRecord, again: Callable[[], ir.Operation] | None) -> None:
        if self.reporter and again and record.snapshot is None:
            try:
                record.snapshot = again()
            except Exception as problem:  # what passed once need not pass twice, and must not hide the failure
                record.remarks.append(f"the module before the stage could not be made again: {problem}")

    def not_reached(self) -> tuple[str, ...]:
        """Return the names of the planned stages that have not begun."""
        return self.planned[len(self.stages) :]

    def _failed(self, record: StageRecord, error: Exception) -> StageFailed:
        diagnostics = diagnostics_of(error)
        remarks = self._find_causes(record) if diagnostics else []
        report = self.reporter(self, record, diagnostics) if self.reporter else None
        title = headline(record.causes) if record.causes else ""
        reason = "\n".join(map(str, record.causes)) or reason_of(error)
        lines = [f"stage '{record.name}' failed: {title}".strip(), *(f"  {line}" for line in reason.splitlines())]
        lines += remarks
        if report:
            lines.append(f"what reproduces it is in {report}")
        message = "\n".join(lines)
        return StageFailed(record.name, message, causes=record.causes, diagnostics=diagnostics, report=report)

    def _find_causes(self, record: StageRecord) -> list[str]:
        """Note the operators that were refused; or return in a sentence why that cannot be found out."""
        if self.investigate and self.imported:
            progress.enter(f"{record.name} failed: finding out why")
            try:
                record.causes = self.investigate(self.imported)
            except Exception as problem:  # a defect of ours must not hide the failure itself
                return [f"which operators are refused could not be found out: {type(problem).__name__}: {problem}"]
        return []
