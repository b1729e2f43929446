"""The report directory of a failed stage, with the commands that reproduce the failure; old directories are removed."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import textwrap
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fx_importer.diagnostics.mlir_diagnostics import Diagnostic, diagnostics_of, reason_of
from fx_importer.diagnostics.options_text import options_to_text
from fx_importer.diagnostics.reports.failure import Failure
from fx_importer.diagnostics.reports.report_contents import readable, save_bytecode, save_program
from fx_importer.diagnostics.reports.report_page import page
from fx_importer.diagnostics.trace import LOCAL_FUNCTION, StageRecord, Trace
from fx_importer.errors import CrashedError, StageFailed
from fx_importer.mlir.bindings import torch_mlir_opt
from fx_importer.options import DecompositionOptions, Options, Weights
from fx_importer.process.one_shot import output_of

PREFIX, SUFFIX = "fx-importer-", "-failed-"
"""A report directory is called ``fx-importer-STAGE-failed-RANDOM``."""

MAX_REPORTS = 20
MAX_BYTES = 200_000_000


def remove_old_reports(newest: Path) -> None:
    """Remove the oldest of the user's reports other than ``newest``, down to `MAX_REPORTS` and `MAX_BYTES`.

    ``newest`` itself is kept. Links, and directories of other users, are not touched.
    """
    reports: list[tuple[float, Path]] = []
    for path in newest.parent.glob(f"{PREFIX}*{SUFFIX}*"):
        with suppress(OSError):  # another process removes it
            status = path.lstat()
            if not path.is_symlink() and path.is_dir() and status.st_uid == os.getuid() and path != newest:
                reports.append((status.st_mtime, path))
    total = _size(newest)
    for number, (_, path) in enumerate(sorted(reports, reverse=True), start=2):
        total += _size(path)
        if number > MAX_REPORTS or total > MAX_BYTES:
            shutil.rmtree(path, ignore_errors=True)


def _size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


BYTECODE, REPORT = "before.mlirbc", "report.json"
_PACKAGES = ("fx-importer", "torch", "torch-mlir", "numpy")
_OPTIONAL = ("iree-base-compiler", "iree-base-runtime", "jaxlib", "tosa-tools", "transformers", "torchao")


@dataclass(frozen=True)
class Reporter:
    """Writer of report directories."""

    options: Options = field(default_factory=Options)
    """The options of the compilation."""

    def __call__(self, trace: Trace, record: StageRecord, diagnostics: tuple[Diagnostic, ...]) -> Path | None:
        """Write the report of the failure of ``record``, and return its directory.

        The directory is created in `RunOptions.directory`, or among temporary files.

        Raises:
            StageFailed: the failure itself, with a note, if no report can be written.
        """
        error = record.failure
        assert error
        try:
            return _write(trace, record, error, self.options)
        except OSError as problem:
            unwritten = f"no report of it could be written: {problem}"
            if isinstance(error, CrashedError):
                error.args = (f"{error}\n{unwritten}",)
                return None
            message = f"stage '{record.name}' failed:\n{textwrap.indent(reason_of(error), '  ')}\n{unwritten}"
            raise StageFailed(record.name, message, diagnostics=diagnostics) from error


def _write(trace: Trace, record: StageRecord, error: Exception, options: Options) -> Path:
    parent = options.running.directory
    if parent:
        parent.mkdir(parents=True, exist_ok=True)
    stage = re.sub(r"[^A-Za-z0-9]+", "-", record.name).strip("-")
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{stage}{SUFFIX}", dir=parent)).absolute()
    try:
        facts = _facts(trace, record, error, options)
        facts["files"] = _save(trace, record, directory, options)
        facts["programs"] = {name: _file_of(name, trace) for name in trace.programs}
        facts["command"] = _command(record, directory, facts)
        if facts["command"]:
            _write_script(directory / "command.sh", record.name, facts["command"])
        (directory / REPORT).write_text(json.dumps(facts, indent=2), encoding="utf-8")
        (directory / "report.md").write_text(page(facts), encoding="utf-8")
        if parent is None:
            remove_old_reports(directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return directory


def _save(trace: Trace, record: StageRecord, directory: Path, options: Options) -> dict[str, str]:
    """Write the programs and the module. Return a sentence about each file, written or not."""
    messages: dict[str, str] = {}
    for name, program in trace.programs.items():
        path = directory / _file_of(name, trace)
        try:
            messages[path.name] = save_program(program, path)
        except Exception as error:  # of any type: torch cannot serialize every exported program
            path.unlink(missing_ok=True)
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            messages[path.name] = f"There is no `{path.name}`: torch.export.save cannot write this program ({reason})."
    if not trace.programs:
        messages["program.pt2"] = "There is no `program.pt2`: the failure came before the export."
    if record.snapshot is not None and record.pipeline:
        external = options.importing.weights is Weights.EXTERNAL
        messages[BYTECODE] = save_bytecode(record.snapshot, directory / BYTECODE, external=external)
        (directory / "before.mlir").write_text(readable(record.snapshot), encoding="utf-8")
        messages["before.mlir"] = "`before.mlir` is the same as text, with elided weights."
    return messages


def _file_of(name: str, trace: Trace) -> str:
    return "program.pt2" if len(trace.programs) == 1 else f"program-{name}.pt2"


def _command(record: StageRecord, directory: Path, facts: dict[str, Any]) -> str | None:
    if LOCAL_FUNCTION in record.pipeline:
        return None
    if BYTECODE in facts["files"]:
        return stage_command(directory / BYTECODE, record.pipeline)
    if (directory / "program.pt2").exists():
        return import_command("program.pt2", facts["options"])
    return None


def _write_script(path: Path, stage: str, command: str) -> None:
    title = " ".join(stage.split())  # a comment is one line
    text = f"""\
#!/bin/sh
# Fails as the stage '{title}' did.
cd "$(dirname "$0")" && exec {command}
"""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _facts(trace: Trace, record: StageRecord, error: Exception, options: Options) -> dict[str, Any]:
    diagnostics = diagnostics_of(error)
    return {
        "stage": record.name,
        "error": reason_of(error),
        "failure": dataclasses.asdict(Failure.of(record.name, error)),
        "causes": [dataclasses.asdict(cause) for cause in record.causes],
        "diagnostics": [dataclasses.asdict(diagnostic) | {"where": diagnostic.where} for diagnostic in diagnostics],
        "crash": _crash(error) if isinstance(error, CrashedError) else None,
        "traceback": None if diagnostics or isinstance(error, CrashedError) else _traceback(error),
        "stages": [
            *(
                {"name": stage.name, "outcome": "failed" if stage.failure else "passed", "seconds": stage.seconds}
                for stage in trace.stages
            ),
            *({"name": name, "outcome": "not reached", "seconds": None} for name in trace.not_reached()),
        ],
        "pipeline": record.pipeline,
        "options": _portable(options),
        "not_recorded": _not_recorded(options),
        "versions": versions(),
    }


def _portable(options: Options) -> dict[str, Any]:
    """Return ``options`` by name, without the directories of this machine."""
    running = dataclasses.replace(options.running, dump_dir=None, dump_ir=None)
    return options_to_text(dataclasses.replace(options, running=running))


def _not_recorded(options: Options) -> list[str]:
    """Return the names of given options that are Python objects, which a report cannot hold."""
    decompositions, default = options.decompositions, DecompositionOptions()
    not_recorded = [name for name in ("table", "extra") if getattr(decompositions, name) != getattr(default, name)]
    not_recorded += ["lowerings"] * any(not isinstance(lowering, str) for lowering in options.lowering.lowerings)
    return not_recorded if options.lowering.pipeline is None else [*not_recorded, "pipeline"]


def _crash(error: CrashedError) -> dict[str, Any]:
    return {"signal": error.signal, "limit": error.limit, "pass": error.pass_name, "output": error.output}


def _traceback(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def versions() -> dict[str, str]:
    """Return the versions of packages that may affect a failure, optional ones included."""
    versions_by_name = {"python": platform.python_version(), "platform": platform.platform()}
    for name in (*_PACKAGES, *_OPTIONAL):
        try:
            versions_by_name[name] = version(name)
        except PackageNotFoundError:
            versions_by_name[name] = "not installed" if name in _OPTIONAL else "not installed as a distribution"
    return versions_by_name


OPT = "torch-mlir-opt"


def stage_command(bytecode: Path, pipeline: str) -> str:
    """Return a shell command that runs ``pipeline`` on ``bytecode``, in the directory of that file.

    It is ``torch-mlir-opt`` if that has all passes and dialects; the wheel's build has fewer than its Python bindings.
    Otherwise it is `fx_importer.pipelines.replay`.
    """
    if _reads(bytecode) and _knows(pipeline):
        return shlex.join([OPT, bytecode.name, f"-pass-pipeline={pipeline}", "-o", os.devnull])
    return shlex.join(["python", "-m", "fx_importer.pipelines.replay", bytecode.name, pipeline])


def import_command(program: str, options: Mapping[str, Any]) -> str:
    """Return the command that lowers the file ``program`` with ``options``, as `option_values.spelled` returns them."""
    arguments = ["fx-importer", "import", program]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            arguments.append(flag if value else f"--no-{flag[2:]}")
        else:
            for item in value if isinstance(value, list) else [value]:
                arguments += [flag, str(item)]
    return shlex.join([*arguments, "-o", "out.mlirbc"])


def _reads(bytecode: Path) -> bool:
    # Elided resources, so that no weights are written.
    arguments = [bytecode, "--emit-bytecode", "--elide-resource-data-from-bytecode", "-o", os.devnull]
    outcome = _run([torch_mlir_opt(), *arguments])
    return outcome is not None and outcome.returncode == 0


def _knows(pipeline: str) -> bool:
    # Only whether the pipeline can be parsed matters here.
    outcome = _run([torch_mlir_opt(), os.devnull, f"-pass-pipeline={pipeline}"])
    return outcome is not None and "Textual PassPipeline Parser" not in outcome.stderr


def _run(command: list[str | Path]) -> subprocess.CompletedProcess[str] | None:
    try:
        return output_of(command, 60)
    except (OSError, subprocess.TimeoutExpired):
        return None
