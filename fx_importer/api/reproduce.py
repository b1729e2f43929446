"""Reproduction of the failure of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from fx_importer.compiler.compile_programs import compile_programs
from fx_importer.diagnostics.options_text import options_from_text
from fx_importer.diagnostics.reports import Failure
from fx_importer.diagnostics.reports.bundle import BYTECODE, REPORT, versions
from fx_importer.errors import CrashedError, FxImporterError, StageFailed, UsageError
from fx_importer.fx_graph.program_files import read_program
from fx_importer.importing import FxImporter
from fx_importer.json_text import parse_json, read_regular
from fx_importer.mlir.untrusted_module import read_untrusted_module
from fx_importer.options import Options
from fx_importer.pipelines import Stage, parse_steps
from fx_importer.pipelines.isolated_runner import run_stages
from fx_importer.pipelines.pipeline_parser import foreign_steps


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


def reproduce(directory: Path, *, trust: bool = False) -> Reproduction:
    """Run the failed stage of the report in ``directory``, in another process; if it has no passes, all stages before.

    A report names functions of Python that its lowering called, and its program may run code when it is loaded. These
    run only with ``trust``. Nothing outside of ``directory`` is read.

    Raises:
        UsageError: if ``directory`` holds no report, or nothing runnable, or something that needs ``trust``.
    """
    facts = facts_of(directory)
    options = options_of(facts, directory, trust=trust)
    reported = Failure.from_json(facts["failure"])
    bytecode = file_of(directory, BYTECODE)
    run = partial(_run_stage, facts, bytecode) if bytecode.exists() else partial(_run_all, facts, directory)
    now = run(options, trust)
    here = versions()
    differing = {name: (was, here[name]) for name, was in facts["versions"].items() if here.get(name, was) != was}
    return Reproduction(reported, now, differing)


def facts_of(directory: Path) -> dict[str, Any]:
    """Return the data of a report. Raises `UsageError` if ``directory`` holds none."""
    try:
        facts = parse_json(read_regular(file_of(directory, REPORT)))
    except (OSError, ValueError, RecursionError) as error:
        reason = f"it has no '{REPORT}'" if isinstance(error, FileNotFoundError) else str(error)
        raise UsageError(f"'{directory}' holds no report of a failure: {reason}") from None
    needed = {"failure": dict, "options": dict, "versions": dict, "programs": dict, "pipeline": str, "stage": str}
    if not isinstance(facts, dict):
        raise UsageError(f"'{directory / REPORT}' is not a report of a failure: it is a {type(facts).__name__}")
    if missing := set(needed) - set(facts):
        raise UsageError(f"'{directory / REPORT}' is not a report of a failure: it lacks {', '.join(sorted(missing))}")
    texts = [*facts["versions"].values(), *facts["programs"].values()] if _are_dicts(facts, needed) else [None]
    if not all(isinstance(text, str) for text in texts) or not _is_failure(facts["failure"]):
        raise UsageError(f"'{directory / REPORT}' is not a report of a failure: a value is of another type")
    return facts


def _are_dicts(facts: Mapping[str, Any], needed: Mapping[str, type]) -> bool:
    return all(isinstance(facts[name], kind) for name, kind in needed.items())


def _is_failure(report: Mapping[str, Any]) -> bool:
    messages = report.get("messages", report.get("said", ()))
    texts = [report.get("stage"), report.get("kind"), *(messages if isinstance(messages, list | tuple) else [None])]
    return all(isinstance(text, str) for text in texts)


def file_of(directory: Path, name: str) -> Path:
    """Return the file ``name`` of a report. Raises `UsageError` if it is elsewhere, such as by a symbolic link."""
    path = directory / name
    try:
        inside = "\0" not in name and path.resolve().parent == directory.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of symbolic links, an invalid path
        inside = False
    if not inside:
        raise UsageError(f"'{path}' is outside of the report's directory")
    return path


def options_of(facts: Mapping[str, Any], directory: Path, *, trust: bool) -> Options:
    """Return the options of a report, without the options that name files on the machine that runs it.

    Raises:
        UsageError: if they are not valid, or name functions of Python and there is no ``trust``.
    """
    options = {name: value for name, value in facts["options"].items() if name not in ("dump_dir", "dump_ir", "cache")}
    lowerings = options.get("lowerings", [])
    named = [lowering for lowering in lowerings if ":" in str(lowering)] if isinstance(lowerings, list) else [lowerings]
    if not trust and named:
        _refuse(directory, "calls functions of Python", named)
    try:
        return options_from_text(options)
    except UsageError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"'{directory / REPORT}' has no options that are valid here: {error}") from None


def _refuse(directory: Path, what: str, names: Sequence[Any]) -> NoReturn:
    listed = ", ".join(str(name)[:200] for name in names)
    raise UsageError(f"the report in '{directory}' {what}: {listed}. To run them: --trust, or trust=True")


def _run_stage(facts: Mapping[str, Any], bytecode: Path, options: Options, trust: bool) -> Failure | None:
    if not trust and (foreign := foreign_steps(facts["pipeline"])):
        _refuse(bytecode.parent, "has steps that may run other code or open files", foreign)
    # The lowering may have been allowed to have unregistered dialects.
    module = read_untrusted_module(bytecode, unregistered=True)
    stage = Stage(facts["stage"], "", parse_steps(facts["pipeline"]))
    try:
        run_stages([stage], module, options.running.limits)
    except (StageFailed, CrashedError) as error:
        return Failure.caught(error)
    return None


def _run_all(facts: Mapping[str, Any], directory: Path, options: Options, trust: bool) -> Failure | None:
    files = {name: file_of(directory, file) for name, file in facts["programs"].items()}
    if not files or not all(path.exists() for path in files.values()):
        raise UsageError(f"'{directory}' holds no program to run: report.md says why")
    calls = {name: (read_program(path, trust=trust), (), {}) for name, path in files.items()}
    try:
        compile_programs(calls, FxImporter(), options, report=False)
    except (StageFailed, CrashedError) as error:
        return Failure.caught(error)
    except FxImporterError as error:
        return Failure.of("", error)
    return None
