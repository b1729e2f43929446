"""Record of the program or the module after each stage of a compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fx_importer.diagnostics.explorer.sites import Sites
from fx_importer.diagnostics.explorer.views import View, module_view, node_counts, program_view
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_summary import operation_counts


@dataclass(frozen=True)
class Recorded:
    """What there was after a stage that passed."""

    stage: str
    counts: Mapping[str, int]
    """Operations, or calls of a graph, by name."""
    view: View


@dataclass
class Recorder:
    """Keeps the text after each stage, as the ``dumps`` of a `Trace`."""

    sites: Sites = field(default_factory=Sites)
    recorded: dict[int, Recorded] = field(default_factory=dict)
    """By the number of the stage in the trace."""

    def before(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        """Do nothing: what is there before a stage is what was after the last one."""

    def after(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        if record.failure is not None:
            return
        number = len(trace.stages) - 1
        if module is not None:
            self.add_module(number, record.name, module.operation)
        elif record.programs:
            view = program_view(record.programs, self.sites)
            self.recorded[number] = Recorded(record.name, node_counts(record.programs), view)

    def add_module(self, number: int, stage: str, module: ir.Operation) -> None:
        """Record ``module`` as what there was after the stage ``number``."""
        self.recorded[number] = Recorded(stage, operation_counts(module), module_view(module, self.sites))
