"""Reproduction of the failure of a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fx_importer.compiler.driver import compile_programs
from fx_importer.diagnostics.reports import Failure
from fx_importer.diagnostics.reports.bundle import BYTECODE, REPORT, versions
from fx_importer.errors import CrashedError, FxImporterError, StageFailed, UsageError
from fx_importer.importing import FxImporter
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.options import Options, options_from_text
from fx_importer.pipelines import Stage, parse_steps
from fx_importer.pipelines.isolated_runner import run_stages


@dataclass(frozen=True)
class Reproduction:
    """Result of running a report."""

    reported: Failure
    now: Failure | None
    """None if it does not fail."""
    versions: Mapping[str, tuple[str, str]]
    """Reported and current versions of packages that differ."""

    @property
    def same(self) -> bool:
        return self.now == self.reported

    def __str__(self) -> str:
        if self.same:
            lines = ["It fails in the same way:", str(self.reported)]
        elif self.now:
            lines = ["It fails in another way. Reported was:", str(self.reported), "and now it is:", str(self.now)]
        else:
            lines = ["It does not fail any more. Reported was:", str(self.reported)]
        lines += [f"{name} was {reported}, and is {here} here" for name, (reported, here) in self.versions.items()]
        return "\n".join(lines)


def reproduce(directory: Path) -> Reproduction:
    """Run the failed stage of the report in ``directory``, in another process; if it has no passes, all stages before.

    Raises:
        UsageError: if ``directory`` holds no report, or nothing runnable.
    """
    facts = facts_of(directory)
    options = options_from_text(facts["options"])
    reported = Failure.from_json(facts["failure"])
    bytecode = directory / BYTECODE
    now = _run_stage(facts, bytecode, options) if bytecode.exists() else _run_all(facts, directory, options)
    here = versions()
    differing = {name: (was, here[name]) for name, was in facts["versions"].items() if here.get(name, was) != was}
    return Reproduction(reported, now, differing)


def facts_of(directory: Path) -> dict[str, Any]:
    """Return the data of a report. Raises `UsageError` if ``directory`` holds none."""
    try:
        facts = json.loads((directory / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"'{directory}' holds no report of a failure: {error}") from None
    if missing := {"failure", "options", "versions", "programs", "pipeline"} - set(facts):
        raise UsageError(f"'{directory / REPORT}' is no report of a failure: it lacks {', '.join(sorted(missing))}")
    return facts


def _run_stage(facts: Mapping[str, Any], bytecode: Path, options: Options) -> Failure | None:
    load_dialects(context := new_context())
    context.allow_unregistered_dialects = True  # the lowering may have been allowed to
    try:
        module = ir.Module.parseFile(str(bytecode), context)
    except ir.MLIRError as error:
        raise UsageError(f"'{bytecode}' cannot be read here: {error}") from None
    stage = Stage(facts["stage"], "", parse_steps(facts["pipeline"]))
    try:
        run_stages([stage], module, options.running.limits)
    except (StageFailed, CrashedError) as error:
        return Failure.caught(error)
    return None


def _run_all(facts: Mapping[str, Any], directory: Path, options: Options) -> Failure | None:
    files = {name: directory / file for name, file in facts["programs"].items()}
    if not files or not all(path.exists() for path in files.values()):
        raise UsageError(f"'{directory}' holds no program to run: report.md says why")
    calls = {name: (torch.export.load(path), (), {}) for name, path in files.items()}
    try:
        compile_programs(calls, FxImporter(), options, report=False)
    except (StageFailed, CrashedError) as error:
        return Failure.caught(error)
    except FxImporterError as error:
        return Failure.of("", error)
    return None
