"""Record of the program or the module after each stage of a compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fx_importer.diagnostics.explorer.module_view import module_view
from fx_importer.diagnostics.explorer.program_view import node_counts, program_view
from fx_importer.diagnostics.explorer.sites import Sites
from fx_importer.diagnostics.explorer.view import ExplorerView
from fx_importer.diagnostics.observers import Observer
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_summary import operation_counts


@dataclass(frozen=True)
class Recorded:
    """The IR after a stage that passed."""

    stage: str
    counts: Mapping[str, int]
    """Operations, or calls of a graph, by name."""
    view: ExplorerView


@dataclass
class Recorder(Observer):
    """Keeps the text after each stage of a compilation: the first, if it observes several."""

    sites: Sites = field(default_factory=Sites)
    recorded: dict[int, Recorded] = field(default_factory=dict)
    """By the number of the stage in the trace."""
    trace: Trace | None = None
    """The compilation that is recorded."""

    def after(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        self.trace = self.trace or trace
        if record.failure is not None or trace is not self.trace:
            return
        number = len(trace.stages) - 1
        if module is not None:
            self.add_module(number, record.name, module.operation)
        elif record.programs:
            view = program_view(record.programs, self.sites)
            self.recorded[number] = Recorded(record.name, node_counts(record.programs), view)

    def add_module(self, number: int, stage: str, module: ir.Operation) -> None:
        """Record ``module`` as the IR after the stage ``number``."""
        self.recorded[number] = Recorded(stage, operation_counts(module), module_view(module, self.sites))
