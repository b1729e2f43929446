"""Printing and recording of the compilation that a command runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fx_importer.cli.terminal import echo
from fx_importer.errors import FxImporterError, UsageError
from fx_importer.options import Options

if TYPE_CHECKING:
    from fx_importer.diagnostics.explorer import Recorder
    from fx_importer.results.lowered import Lowered
    from fx_importer.verification import Verdict
    from fx_importer.verification.divergence import Divergence


@dataclass
class Followed:
    """Additions of a command to its report."""

    lowered: Lowered | None = None
    verdict: Verdict | None = None
    divergences: list[Divergence] = field(default_factory=list)


@dataclass(frozen=True)
class Following:
    """The options that `fx_importer.cli.following_arguments` adds to commands."""

    report: Path | None = None
    print_ir_after: tuple[str, ...] = ()
    print_ir_after_change: bool = False
    print_ir_diff: bool = False
    timing: bool = False

    @property
    def prints(self) -> bool:
        return bool(self.print_ir_after or self.print_ir_after_change or self.print_ir_diff)

    def prepared(self, options: Options) -> Options:
        """Return ``options`` for a compilation that can be followed: it is not taken from the cache.

        Raises:
            UsageError: if the passes run in another process, whose passes are not seen.
        """
        if options.running.isolate and (self.prints or self.timing):
            raise UsageError(
                "--isolate runs the passes in another process: --print-ir-... and --timing do not see them"
            )
        if not (self.prints or self.timing or self.report):
            return options
        return replace(options, running=replace(options.running, cache=False))

    @contextmanager
    def run(self, title: str, output_type: str) -> Iterator[Followed]:
        """Follow the first compilation in the body; print, and write the report also if it fails.

        Raises:
            UsageError: if the report cannot be written, or a name is of no pass or stage; both before the body.
        """
        from fx_importer.diagnostics.explorer import Recorder
        from fx_importer.diagnostics.ir_printer import IrPrinter
        from fx_importer.diagnostics.observers import observing
        from fx_importer.diagnostics.pass_times import PassTimes
        from fx_importer.results.report import check_report

        followed = Followed()
        if self.report:
            check_report(self.report)
        self._check_names()
        recorder, times = Recorder(), PassTimes()
        printer = IrPrinter(self.print_ir_after, self.print_ir_after_change, self.print_ir_diff, _to_stderr)
        wanted = ((recorder, self.report), (printer, self.prints), (times, self.timing))
        error = None
        try:
            with observing(*(observer for observer, chosen in wanted if chosen)):
                yield followed
        except UsageError:
            raise
        except FxImporterError as problem:
            error = problem
            raise
        finally:
            if self.timing:
                _to_stderr(times.table())
            if missing := [name for name in self.print_ir_after if name not in printer.printed]:
                _to_stderr(f"warning: --print-ir-after: not run: {', '.join(missing)}")
            if self.report and recorder.trace:
                self._write(title, output_type, recorder, followed, error)

    def _check_names(self) -> None:
        """Raise `UsageError` for names that no output type has."""
        from fx_importer.compiler.driver import FX_STAGES
        from fx_importer.diagnostics.ir_printer import pass_name
        from fx_importer.engines.engine_table import module_engines
        from fx_importer.pipelines import PIPELINES
        from fx_importer.pipelines.runner import single_passes

        if not self.print_ir_after:
            return
        engines = [(engine.pipeline, kind) for engine in module_engines() for kind in engine.accepts]
        pipelines = [*PIPELINES.values(), *(pipeline(kind) for pipeline, kind in engines if pipeline is not None)]
        stages = [stage for pipeline in pipelines for stage in pipeline.stages]
        passes = {pass_name(str(step)) for stage in stages for (step,) in single_passes(stage)}
        fx_passes = {fx_pass.name for stage in FX_STAGES for fx_pass in stage.passes}
        known = {*(stage.name for stage in FX_STAGES), *fx_passes, *(stage.name for stage in stages), *passes}
        if unknown := [name for name in self.print_ir_after if name not in known]:
            raise UsageError(
                f"--print-ir-after: no pass or stage is named {', '.join(unknown)}; `fx-importer pipeline MODEL` "
                "lists them"
            )

    def _write(
        self, title: str, output_type: str, recorder: Recorder, followed: Followed, error: FxImporterError | None
    ) -> None:
        from fx_importer.results.report import contents_of_recording, write_report

        assert self.report is not None
        contents = contents_of_recording(
            title, output_type, recorder, followed.lowered, followed.verdict, followed.divergences, error
        )
        write_report(contents, self.report)
        _to_stderr(f"{self.report}: {self.report.stat().st_size:,} bytes")


def _to_stderr(text: str) -> None:
    echo(text, file=sys.stderr)
