"""The output type of each operator of a program that was lowered with a fallback."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fx_importer.diagnostics.causes import Cause, Place
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations
from fx_importer.output_types import OutputType


@dataclass(frozen=True)
class OperatorOutputType:
    """The output type that calls of an operator were lowered to, and the reason."""

    op: str
    """The overload, ``"aten.sort.default"``; for an operator that a fallback took, with its operand types."""
    output_type: OutputType
    count: int
    """The number of calls."""
    reason: str = ""
    """Why the requested output type does not support the operator; empty if it does."""
    places: tuple[Place, ...] = ()
    """Source lines of the calls that went to a fallback."""

    def __str__(self) -> str:
        line = f"{self.output_type.value}: {self.op}" + (f", {self.count} times" if self.count > 1 else "")
        return "\n".join(
            [line, *([f"  {self.reason}"] if self.reason else []), *(f"  {place}" for place in self.places)]
        )


def operators_lowered_to(output_type: OutputType, module: ir.Operation) -> list[OperatorOutputType]:
    """Return the operators of ``module``, which is in the torch dialect, with the number of calls of each."""
    counts: Counter[str] = Counter()
    for op in operations(module):
        name = op.name
        if name == "torch.operator":
            name = ir.StringAttr(op.attributes["name"]).value
        if name.startswith("torch.aten.") or op.name == "torch.operator":
            counts[name.removeprefix("torch.")] += 1
    return [OperatorOutputType(name, output_type, count) for name, count in counts.items()]


def taken_by_fallback(output_type: OutputType, cause: Cause) -> OperatorOutputType:
    """Return the record of the calls that failed with ``cause`` and were lowered to ``output_type``."""
    return OperatorOutputType(cause.call, output_type, len(cause.places), cause.reason, cause.places)
