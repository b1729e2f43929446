"""Contents of a report as JSON values."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from fx_importer.diagnostics.causes import Cause
from fx_importer.diagnostics.explorer.recorder import PROGRAM, Recorder
from fx_importer.diagnostics.explorer.sites import Frame, Site
from fx_importer.diagnostics.explorer.view import ExplorerView
from fx_importer.diagnostics.source_lines import source_lines
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.errors import CrashedError, FxImporterError, StageFailed, UnsupportedNode, UnsupportedProgramError
from fx_importer.frontend.torch_patches import warnings_filtered
from fx_importer.mlir.module_summary import ModuleSummary

Contents = dict[str, Any]

SCHEMA_VERSION = 1
"""Changed whenever a reader of the JSON has to."""


def contents_of(
    title: str,
    output_type: str,
    trace: Trace,
    recorder: Recorder,
    summary: ModuleSummary | None = None,
    error: FxImporterError | None = None,
    seconds: Mapping[str, float] | None = None,
    checks: Sequence[Contents] = (),
    divergences: Sequence[Contents] = (),
) -> Contents:
    """Return the contents of the report of a compilation.

    Args:
        title: the model's name.
        output_type: the output type that was asked for.
        trace: the stages.
        recorder: what there was after each of them.
        summary: of the module; None if the lowering failed.
        error: the failure.
        seconds: times of stages by name, instead of the times in ``trace``.
        checks: the outputs that were compared with eager's, as in the JSON.
        divergences: the first operations that differ, as in the JSON; files of places by their paths.
    """
    recorder.release()
    views, stages = _views_and_stages(trace, recorder, seconds or {})
    problems = _problems(error, trace.stages)
    sites = list(recorder.sites.numbers)
    located = [*problems, *divergences]
    paths = list(dict.fromkeys(path for path, _ in _frames(sites, located)))
    files = {path: number for number, path in enumerate(paths)}
    names: dict[str, int] = {}
    return {
        "schema_version": SCHEMA_VERSION,
        "generator": f"fx-importer {version('fx-importer')}",
        "title": title,
        "output_type": output_type,
        "outcome": "failed" if error else "lowered",
        "error": str(error) if error else None,
        "functions": dict(summary.functions) if summary else {},
        "stages": stages,
        "not_reached": list(trace.not_reached()) if error else [],
        "views": [_view(view, _refused(view, recorder, sites, located), names) for view in views],
        "passes": [asdict(pass_) for pass_ in recorder.passes],
        "node_names": list(names),
        "modules": dict(recorder.sites.classes),
        "site_sets": [list(members) for members in recorder.sites.sets],
        "sites": [
            {"module": site.module, "frames": [[files[path], line] for path, line in site.frames]} for site in sites
        ],
        "files": [_file(path, recorder.program_lines if path == PROGRAM else None) for path in paths],
        "constants": [asdict(constant) for constant in summary.constants] if summary else [],
        "problems": _with_files(problems, files),
        "checks": list(checks),
        "divergences": _with_files(divergences, files),
    }


def _views_and_stages(
    trace: Trace, recorder: Recorder, seconds: Mapping[str, float]
) -> tuple[list[ExplorerView], list[Contents]]:
    """Return the views that differ from those before them, and the stages, which refer to views by index."""
    views: list[ExplorerView] = []
    stages: list[Contents] = []
    for number, record in enumerate(trace.stages):
        recorded = recorder.recorded.get(number)
        if recorded and (not views or recorded.view.lines != views[-1].lines):
            views.append(recorded.view)
        stages.append(
            {
                "name": record.name,
                "seconds": seconds.get(record.name, record.seconds),
                "outcome": "failed" if record.failure else "passed",
                "operations": dict(recorded.counts) if recorded else None,
                "view": len(views) - 1 if recorded else None,
                "remarks": list(record.remarks),
            }
        )
    return views, stages


def _view(view: ExplorerView, refused: list[int], names: dict[str, int]) -> Contents:
    """Return a view with the lines ``refused``; ``names`` numbers the names of nodes, and is added to."""
    return {
        "kind": view.kind,
        "lines": list(view.lines),
        "site_sets": list(view.sites),
        "refused": refused,
        "nodes": [[node.line, names.setdefault(node.name, len(names)), list(node.inputs)] for node in view.nodes],
    }


def _file(path: str, lines: Sequence[str] | None) -> Contents:
    """Return a file by its ``lines``, which are read if they are None."""
    if lines is not None:
        return {"path": path, "lines": list(lines), "statements": []}
    lines = source_lines(path)
    return {"path": path, "lines": lines, "statements": list(long_statements("\n".join(lines or ())))}


def _with_files(located: Sequence[Contents], files: Mapping[str, int]) -> list[Contents]:
    """Return ``located`` with the paths of its places as indices of ``files``."""
    return [
        {
            **problem,
            "places": [{**place, "file": files.get(place["file"])} for place in problem["places"]],
        }
        for problem in located
    ]


def _problems(error: FxImporterError | None, stages: Sequence[StageRecord]) -> list[Contents]:
    """Return the unsupported operators and nodes of a failure; files of places by their paths."""
    nodes = error.unsupported_nodes if isinstance(error, UnsupportedProgramError) else ()
    causes = error.causes if isinstance(error, (UnsupportedProgramError, StageFailed, CrashedError)) else ()
    failed = next((stage.name for stage in stages if stage.failure), "")
    return [*(_node_problem(node, failed) for node in nodes), *map(_cause_problem, causes)]


def _node_problem(node: UnsupportedNode, stage: str) -> Contents:
    path, _, line = (node.where or "").rpartition(":")
    place = {"file": path, "line": int(line), "module": None} if path and line.isdecimal() else None
    return {
        "title": node.subject,
        "operator": node.subject.rpartition(" = ")[2] if node.node else "",
        "stage": stage,
        "reason": node.reason,
        "places": [place] if place else [],
        "suggestions": [],
    }


def _cause_problem(cause: Cause) -> Contents:
    return {
        "title": cause.call,
        "operator": cause.op,
        "stage": cause.stage,
        "reason": cause.reason,
        "places": [{"file": place.file, "line": place.line, "module": place.module} for place in cause.places],
        "suggestions": list(cause.suggestions),
    }


def _frames(sites: Sequence[Site], problems: Sequence[Contents]) -> list[Frame]:
    """Return the source lines that ``sites`` and ``problems`` name, those nearest to the user's code first."""
    inner = [site.frames[0] for site in sites if site.frames]
    others = [frame for site in sites for frame in site.frames[1:]]
    places = [(location["file"], location["line"]) for problem in problems for location in problem["places"]]
    return [*inner, *others, *(place for place in places if place[0] is not None)]


def _refused(view: ExplorerView, recorder: Recorder, sites: Sequence[Site], problems: Sequence[Contents]) -> list[int]:
    """Return the numbers of the lines of ``view`` that are operators which were refused or differ, at their places.

    Where no line has the name of the operator, as after a conversion to another dialect, all from its place count.
    """
    rows_refused: set[int] = set()
    at = [{sites[number] for number in members} for members in recorder.sites.sets]
    for problem in problems:
        name = ".".join(problem["operator"].split(".")[:2])
        places = {(place["file"], place["line"]) for place in problem["places"]}
        modules = {place["module"] for place in problem["places"]}
        if not name:
            continue
        rows = [
            number
            for number, place in enumerate(view.sites)
            if any(places.intersection(site.frames) and modules & {site.module, None} for site in at[place])
        ]
        named = [row for row in rows if name in view.lines[row]]
        rows_refused.update(named or (rows if "node" in problem else []))
    return sorted(rows_refused)


_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert)


def long_statements(source: str) -> Iterator[tuple[int, int]]:
    """Yield the first and last lines of simple multi-line statements of ``source``; none if it is not valid Python."""
    try:
        with warnings_filtered("ignore"):  # of escape sequences in strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, _SIMPLE) and node.end_lineno is not None and node.end_lineno > node.lineno:
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not is_text:
                yield node.lineno, node.end_lineno
