"""Time of stages and passes, and numbers of operations after them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fx_importer.diagnostics.explorer.program_view import node_counts
from fx_importer.diagnostics.ir_printer import pass_name
from fx_importer.diagnostics.observers import Observer
from fx_importer.diagnostics.trace import StageRecord, Trace
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_summary import operation_counts

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@dataclass
class PassTimes(Observer):
    """Rows for stages, and for the passes of each: indented name, seconds, operations after it if known."""

    rows: list[tuple[str, float, int | None]] = field(default_factory=list)
    _passes: list[tuple[str, float, int | None]] = field(default_factory=list)
    _start: float = 0.0

    def before_pass(self, name: str, module: ir.Operation) -> None:
        self._start = time.perf_counter()

    def after_pass(self, name: str, module: ir.Operation) -> None:
        seconds = time.perf_counter() - self._start
        self._passes.append((f"  {pass_name(name)}", seconds, sum(operation_counts(module).values())))

    def before_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        self._start = time.perf_counter()

    def after_fx_pass(self, name: str, programs: Mapping[str, ExportedProgram]) -> None:
        seconds = time.perf_counter() - self._start
        self._passes.append((f"  {name}", seconds, sum(node_counts(programs).values())))

    def after(self, trace: Trace, record: StageRecord, module: ir.Module | None) -> None:
        count = None
        if record.programs:
            count = sum(node_counts(record.programs).values())
        elif module is not None and record.failure is None:
            count = sum(operation_counts(module.operation).values())
        passes, self._passes = self._passes, []
        # Of a pipeline's stage, the time without what observers and the verifier take between its passes.
        seconds = sum(pass_[1] for pass_ in passes) if record.pipeline and passes else record.seconds
        self.rows += [(record.name, seconds, count), *passes]

    def table(self) -> str:
        """Return a line for each row, and the sum; shares are of all stages."""
        total = sum(seconds for name, seconds, _ in self.rows if not name.startswith(" "))
        width = max((len(name) for name, _, _ in self.rows), default=5)
        lines = [f"{'stage and pass':<{width}}    seconds   share  operations after"]
        for name, seconds, count in self.rows:
            share = seconds / (total or 1)
            lines.append(
                f"{name:<{width}} {seconds:10.3f} {share:7.1%}  {'' if count is None else f'{count:,}'}".rstrip()
            )
        return "\n".join([*lines, f"{'all':<{width}} {total:10.3f}"])
