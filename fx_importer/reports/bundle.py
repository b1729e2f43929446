"""The directory that a failed stage leaves behind."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import shutil
import tempfile
import textwrap
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fx_importer.bindings import ir
from fx_importer.diagnostics import Diagnostic
from fx_importer.errors import StageFailed
from fx_importer.reports.command import command_for
from fx_importer.trace import StageRecord, Trace

_READABLE_LIMIT = 4_000_000
"""Characters of ``before.mlir``; the whole module is in ``before.mlirbc``."""


def write_report(trace: Trace, record: StageRecord, diagnostics: tuple[Diagnostic, ...]) -> Path | None:
    """Write what repeats the failure of ``record`` into a fresh directory, and return it.

    The directory is made under ``FX_IMPORTER_DUMP_DIR``, or where temporary files go. It holds the module before the
    stage (``before.mlirbc``, and ``before.mlir`` to read), ``command.sh``, ``report.md`` and ``report.json``. A stage
    that runs no passes leaves nothing to repeat: None is returned.

    Raises:
        StageFailed: the failure that was to be reported, saying also why no report could be written.
    """
    if record.snapshot is None or not record.pipeline:
        return None
    try:
        return _write(trace, record, diagnostics, record.snapshot)
    except OSError as error:
        reason = textwrap.indent(_reason(record, diagnostics), "  ")
        message = f"stage '{record.name}' failed:\n{reason}\nno report of it could be written: {error}"
        raise StageFailed(record.name, message, diagnostics=diagnostics) from record.failure


def _write(trace: Trace, record: StageRecord, diagnostics: tuple[Diagnostic, ...], module: ir.Operation) -> Path:
    parent = os.environ.get("FX_IMPORTER_DUMP_DIR")
    if parent:
        Path(parent).mkdir(parents=True, exist_ok=True)
    stage = re.sub(r"[^A-Za-z0-9]+", "-", record.name).strip("-")
    directory = Path(tempfile.mkdtemp(prefix=f"fx-importer-{stage}-failed-", dir=parent or None)).absolute()
    try:
        _write_bytecode(module, directory / "before.mlirbc")
        (directory / "before.mlir").write_text(_readable(module), encoding="utf-8")
        command = command_for(directory / "before.mlirbc", record.pipeline)
        _write_script(directory / "command.sh", record.name, command)
        facts = _facts(trace, record, diagnostics, command)
        (directory / "report.json").write_text(json.dumps(facts, indent=2), encoding="utf-8")
        (directory / "report.md").write_text(_markdown(trace, record, diagnostics, command), encoding="utf-8")
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return directory


def _write_bytecode(module: ir.Operation, path: Path) -> None:
    # Into a file of Python's, for a passing copy of each weight: LLVM's own ends the process where the disk is full.
    with path.open("wb") as file:
        module.write_bytecode(file)


def _readable(module: ir.Operation) -> str:
    # Local scope leaves out the resource section: without it every weight would be turned into hexadecimal digits.
    text = module.get_asm(use_local_scope=True, large_elements_limit=16, enable_debug_info=True)
    if len(text) <= _READABLE_LIMIT:
        return text
    kept = text[: text.rindex("\n", 0, _READABLE_LIMIT)]
    return f"{kept}\n// cut here, {len(text) - len(kept):,} characters short; before.mlirbc holds the whole module\n"


def _write_script(path: Path, stage: str, command: str) -> None:
    title = " ".join(stage.split())  # one line, as a comment has to be
    text = f"""\
#!/bin/sh
# Fails as the stage '{title}' did.
cd "$(dirname "$0")" && exec {command}
"""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _facts(trace: Trace, record: StageRecord, diagnostics: tuple[Diagnostic, ...], command: str) -> dict[str, object]:
    return {
        "stage": record.name,
        "error": f"{type(record.failure).__name__}: {record.failure}",
        "diagnostics": [dataclasses.asdict(diagnostic) | {"where": diagnostic.where} for diagnostic in diagnostics],
        "stages": [
            {"name": each.name, "passed": each.failure is None, "seconds": each.seconds} for each in trace.stages
        ],
        "pipeline": record.pipeline,
        "command": command,
        "versions": _versions(),
    }


def _markdown(trace: Trace, record: StageRecord, diagnostics: tuple[Diagnostic, ...], command: str) -> str:
    ladder = [
        f"| {each.name} | passed | {each.seconds:.3f} |" if each.failure is None else f"| {each.name} | **failed** | |"
        for each in trace.stages
    ]
    versions = [f"| {name} | {number} |" for name, number in _versions().items()]
    return "\n".join(
        [
            f"# The stage `{record.name}` failed",
            "",
            "```text",
            _reason(record, diagnostics),
            "```",
            "",
            "| stage | outcome | seconds |",
            "|---|---|---|",
            *ladder,
            "",
            "## To see it again",
            "",
            "`./command.sh`, which runs, in this directory:",
            "",
            "```sh",
            command,
            "```",
            "",
            "`before.mlirbc` is the module before the stage, weights included: look before you send it to anybody.",
            "`before.mlir` is the same without them, to read. `report.json` is this page as data.",
            "",
            "| | version |",
            "|---|---|",
            *versions,
            "",
        ]
    )


def _reason(record: StageRecord, diagnostics: tuple[Diagnostic, ...]) -> str:
    return "\n".join(map(str, diagnostics)) or f"{type(record.failure).__name__}: {record.failure}"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("fx-importer", "torch", "torch-mlir"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed as a distribution"
    return found
