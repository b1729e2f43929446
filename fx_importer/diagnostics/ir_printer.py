"""Printing of programs and modules after stages and passes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from fx_importer.diagnostics.explorer.program_view import program_view
from fx_importer.diagnostics.explorer.sites import Sites
from fx_importer.diagnostics.observers import Observer
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.mlir.bindings import ir

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_VALUE = re.compile(r"%[\w#:]+")


@dataclass
class IrPrinter(Observer):
    """Prints the IR after passes, and after stages: the exported programs, and the imported module."""

    names: tuple[str, ...]
    """Names of passes and stages; empty for all."""
    only_changes: bool
    """Whether to leave out what a pass did not change."""
    as_diff: bool
    """Whether to print what changed, instead of all."""
    write: Callable[[str], None]
    printed: set[str] = field(default_factory=set)
    """Names that were met."""
    _stage: str = ""
    _has_passes: bool = False
    """Whether FX passes ran in the stage."""
    _last: str | None = None

    def before(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        self._stage, self._has_passes = record.name, False
        if module is not None and record.pipeline and (self.only_changes or self.as_diff):
            self._last = module_text(module.operation)

    def after(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        if record.failure is not None:
            return
        if record.programs:
            if not self._has_passes or record.name in self.names:
                self._met(record.name, "", programs_text(record.programs))
        elif module is not None and (not record.pipeline or record.name in self.names):
            if not record.pipeline:
                self._last = None  # of another form than the programs
            self._met(record.name, "", module_text(module.operation))

    def after_pass(self, name: str, module: ir.Operation) -> None:
        called = pass_name(name)
        if self.only_changes or self.as_diff or self._wanted(called):
            self._met(called, f" in stage '{self._stage}'", module_text(module))

    def after_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        self._has_passes = True
        if self.only_changes or self.as_diff or self._wanted(name):
            self._met(name, f" in stage '{self._stage}'", programs_text(programs))

    def _wanted(self, name: str) -> bool:
        return not self.names or name in self.names

    def _met(self, name: str, where: str, text: str) -> None:
        last, self._last = self._last, text
        if not self._wanted(name):
            return
        self.printed.add(name)
        if (self.only_changes or self.as_diff) and text == last:
            return
        kind = "pass" if where else "stage"
        self.write(f"// ----- after {kind} '{name}'{where} -----")
        self.write("\n".join(diff_lines(last, text)) if self.as_diff and last is not None else text)


def pass_name(text: str) -> str:
    """Return the name of the pass in ``func.func(canonicalize{top-down=true})``."""
    return text.split("(", text.partition("{")[0].count("("))[-1].partition("{")[0].partition(")")[0]


def programs_text(programs: Mapping[str, ExportedProgram]) -> str:
    """Return the graphs of ``programs``, a line for each node."""
    return "\n".join(program_view(programs, Sites()).lines)


def module_text(module: ir.Operation) -> str:
    """Return ``module`` without its weights: local scope omits the resource section."""
    return module.get_asm(large_elements_limit=16, use_local_scope=True).rstrip()


def diff_lines(before: str, after: str) -> Iterator[str]:
    """Yield the lines that differ, with three around them; lines that differ in the numbers of values are equal."""
    old, new = before.splitlines(), after.splitlines()
    compared = ([_VALUE.sub("%", line) for line in lines] for lines in (old, new))
    for group in SequenceMatcher(None, *compared, autojunk=False).get_grouped_opcodes(3):
        (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
        yield f"@@ -{a1 + 1},{a2 - a1} +{b1 + 1},{b2 - b1} @@"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in new[j1:j2])
            else:
                yield from (f"-{line}" for line in old[i1:i2])
                yield from (f"+{line}" for line in new[j1:j2])
