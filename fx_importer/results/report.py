"""Reports for the explorer, of results, with verdicts and divergences as JSON values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fx_importer.diagnostics.explorer import Contents, Recorder, Report, contents_of, html_page, json_text
from fx_importer.diagnostics.observers import observing
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import FxImporterError
from fx_importer.mlir.module_summary import summary_of
from fx_importer.mlir.output_files import check_writable, save_text
from fx_importer.verification.divergence import Divergence
from fx_importer.verification.verdict import Check, Verdict

if TYPE_CHECKING:
    from fx_importer.results.lowered import Lowered

_TEXT = {".html": html_page, ".json": json_text}


def check_report(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` if a report can be written there. Raises `UsageError` for another suffix, or if it cannot."""
    return check_writable(path, tuple(_TEXT))


def write_report(contents: Contents, path: str | os.PathLike[str]) -> None:
    """Write a report as a page, or as JSON. Raises `UsageError` if the file cannot be written."""
    path = check_report(path)
    save_text(_TEXT[path.suffix](contents), path)


def report_of_lowered(
    lowered: Lowered,
    path: str | os.PathLike[str] | None,
    verdict: Verdict | None,
    divergence: Divergence | None,
) -> Report:
    """Return `contents_of_lowered` as a report, and write it if there is a ``path``."""
    if path is not None:
        check_report(path)
    report = Report(contents_of_lowered(lowered, verdict, divergence))
    if path is not None:
        write_report(report.contents, path)
    return report


def contents_of_lowered(lowered: Lowered, verdict: Verdict | None = None, *divergences: Divergence | None) -> Contents:
    """Return the report of a result, whose programs are lowered again; without programs, the report of its module."""
    recorder = Recorder()
    trace = Trace(planned=tuple(stage.name for stage in lowered.trace.stages) or (lowered.manifest.output_type,))
    with observing(recorder):
        if lowered.exported:
            module = lowered.recompile(lowered.exported, (), None, trace=trace).module
        else:
            module = lowered.module
            with trace.stage(lowered.manifest.output_type, module):
                pass  # the stages are not known: only what came out of them
    seconds = {stage.name: stage.seconds for stage in lowered.trace.stages}
    summary = summary_of(module.operation, lowered.manifest)
    return contents_of(
        recorder.sites.classes.get("") or ", ".join(summary.functions),
        lowered.manifest.output_type,
        trace,
        recorder,
        summary,
        seconds=seconds,
        checks=contents_of_verdict(verdict) if verdict is not None else (),
        divergences=[contents_of_divergence(divergence) for divergence in divergences if divergence],
    )


def contents_of_recording(
    title: str,
    output_type: str,
    recorder: Recorder,
    lowered: Lowered | None,
    verdict: Verdict | None = None,
    divergences: Sequence[Divergence] = (),
    error: FxImporterError | None = None,
) -> Contents:
    """Return the report of a compilation that ``recorder`` observed, and its result if there is one."""
    assert recorder.trace is not None
    return contents_of(
        title,
        output_type,
        recorder.trace,
        recorder,
        None if lowered is None else summary_of(lowered.module.operation, lowered.manifest),
        error,
        checks=contents_of_verdict(verdict) if verdict is not None else (),
        divergences=[contents_of_divergence(divergence) for divergence in divergences],
    )


def contents_of_verdict(verdict: Verdict) -> list[Contents]:
    """Return a value for each output that was compared, and for each call that has none."""
    return [output for check in verdict.checks for output in _outputs(check)]


def _outputs(check: Check) -> Iterator[Contents]:
    common: Contents = {
        "backend": check.backend,
        "function": check.function,
        "inputs": check.inputs,
        "required": check.required,
    }
    if not check.outputs:
        yield {**common, "output": None, "status": check.status.value, "detail": check.reason}
    for output in check.outputs:
        compared = output.comparison
        status = "passed" if compared.passed else "mismatch"
        yield {
            **common,
            "output": output.name,
            "status": status,
            "detail": str(compared),
            "dtype": compared.dtype,
            "shape": list(compared.shape),
            "max_absolute": _number(compared.max_absolute),
            "max_relative": _number(compared.max_relative),
        }


def contents_of_divergence(divergence: Divergence) -> Contents:
    """Return the node, its place, and the text of ``divergence``."""
    path, _, line = (divergence.where or "").rpartition(":")
    place = {"file": path, "line": int(line), "module": divergence.module or None} if line.isdecimal() else None
    return {
        "node": divergence.node,
        "operator": divergence.operator,
        "backend": divergence.backend,
        "cause": divergence.cause.value,
        "detail": str(divergence),
        "places": [place] if place else [],
    }


def _number(value: float) -> float | None:
    """Return ``value``, or None for infinities and NaN, which JSON lacks."""
    return value if abs(value) < float("inf") else None
