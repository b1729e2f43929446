"""Record of the program or the module after each stage of a compilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import fx

from fx_importer.diagnostics.explorer.module_view import module_view
from fx_importer.diagnostics.explorer.pass_changes import PassChange, hunks_between
from fx_importer.diagnostics.explorer.program_view import node_counts, program_view
from fx_importer.diagnostics.explorer.sites import Sites
from fx_importer.diagnostics.explorer.view import ExplorerView
from fx_importer.diagnostics.mlir_diagnostics import read_frames
from fx_importer.diagnostics.observers import Observer
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_summary import operation_counts

if TYPE_CHECKING:
    from torch.export import ExportedProgram

PROGRAM = "exported program"
"""The file of FX nodes that have no Python line, as those of gradients."""

MOST_OPERATIONS = 2000
"""Operations beyond which changes of single passes are not recorded: each takes as long as the pass."""


@dataclass(frozen=True)
class Recorded:
    """The IR after a stage that passed."""

    stage: str
    counts: Mapping[str, int]
    """Operations, or calls of a graph, by name."""
    view: ExplorerView


@dataclass
class Recorder(Observer):
    """Keeps the text after each stage of a compilation, and what its passes changed: the first, if it observes several.

    While it records, FX nodes without a Python line have lines of the exported program, by which views are linked.
    """

    sites: Sites = field(default_factory=Sites)
    recorded: dict[int, Recorded] = field(default_factory=dict)
    """By the number of the stage in the trace."""
    passes: list[PassChange] = field(default_factory=list)
    trace: Trace | None = None
    """The compilation that is recorded."""
    program_lines: tuple[str, ...] = ()
    """The lines of `PROGRAM`, if nodes have no lines of Python."""
    _last: tuple[str, ...] = ()
    """The text before the next pass."""
    _traced: list[fx.Node] = field(default_factory=list)

    def before(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        self.trace = self.trace or trace
        if trace is self.trace and module is not None and record.pipeline:
            self._last = _lines(module.operation)

    def after(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        self.trace = self.trace or trace
        if record.failure is not None or trace is not self.trace:
            return
        number = len(trace.stages) - 1
        if module is not None:
            self.add_module(number, record.name, module.operation)
        elif record.programs:
            if not self.recorded:
                self._give_lines(record.programs)
            view = program_view(record.programs, self.sites)
            self.recorded[number] = Recorded(record.name, node_counts(record.programs), view)

    def after_pass(self, name: str, module: ir.Operation) -> None:
        self._add_pass(name, sum(operation_counts(module).values()), lambda: _lines(module))

    def before_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        if sum(node_counts(programs).values()) <= MOST_OPERATIONS:
            self._last = program_view(programs, Sites()).lines

    def after_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        count = sum(node_counts(programs).values())
        self._add_pass(name, count, lambda: program_view(programs, Sites()).lines)

    def _add_pass(self, name: str, count: int, lines: Callable[[], tuple[str, ...]]) -> None:
        """Record a pass of the current stage; of a large program, its name alone."""
        if self.trace is None:
            return
        before, self._last = self._last, lines() if count <= MOST_OPERATIONS else ()
        hunks = tuple(hunks_between(before, self._last)) if before and self._last and before != self._last else ()
        self.passes.append(PassChange(len(self.trace.stages) - 1, name, count, hunks))

    def add_module(self, number: int, stage: str, module: ir.Operation) -> None:
        """Record ``module`` as the IR after the stage ``number``."""
        self.recorded[number] = Recorded(stage, operation_counts(module), module_view(module, self.sites))

    def _give_lines(self, programs: Mapping[str, ExportedProgram]) -> None:
        """Give nodes without a Python line the line of `program_view`."""
        starts: dict[fx.Node, int] = {}
        lines = program_view(programs, Sites(), starts).lines
        self._traced = [
            node for node in starts if node.op == "call_function" and not read_frames(node.meta.get("stack_trace"))
        ]
        for node in self._traced:
            node.meta["stack_trace"] = f'File "{PROGRAM}", line {starts[node] + 1}, in {node.name}'
        self.program_lines = lines if self._traced else ()

    def release(self) -> None:
        """Take the lines of `PROGRAM` off the nodes."""
        for node in self._traced:
            node.meta.pop("stack_trace", None)
        self._traced = []


def _lines(module: ir.Operation) -> tuple[str, ...]:
    if sum(operation_counts(module).values()) > MOST_OPERATIONS:
        return ()
    return tuple(module.get_asm(use_local_scope=True, large_elements_limit=16).splitlines())
