"""Which operators of a program went to which output type, where there are several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.diagnostics.causes import Cause, Place
from fx_importer.mlir.bindings import ir
from fx_importer.output_types import OutputType


@dataclass(frozen=True)
class Placement:
    """Calls of an operator that were lowered to the same output type, for the same reason."""

    op: str
    """The overload: ``"aten.sort.default"``; or, of what the fallback took, with its types."""
    output_type: OutputType
    count: int
    """How many calls."""
    reason: str = ""
    """Why the output type that was asked for did not take it; nothing if it did."""
    places: tuple[Place, ...] = ()
    """Where the calls of those that it did not take are."""

    def __str__(self) -> str:
        line = f"{self.output_type.value}: {self.op}" + (f", {self.count} times" if self.count > 1 else "")
        return "\n".join([line, *([f"  {self.reason}"] if self.reason else []), *(f"  {each}" for each in self.places)])


def taken_by(module: ir.Operation, output_type: OutputType) -> list[Placement]:
    """Return the operators of ``module``, which is in the torch dialect, each with how often it is called."""
    counts: Counter[str] = Counter()

    def see(op: ir.Operation) -> ir.WalkResult:
        name = op.name
        if name == "torch.operator":
            name = ir.StringAttr(op.attributes["name"]).value
        if name.startswith("torch.aten.") or op.name == "torch.operator":
            counts[name.removeprefix("torch.")] += 1
        return ir.WalkResult.ADVANCE

    module.walk(see, ir.WalkOrder.PRE_ORDER)
    return [Placement(name, output_type, count) for name, count in counts.items()]


def fallen_to(output_type: OutputType, cause: Cause) -> Placement:
    """Return where the calls went that ``cause`` speaks of."""
    return Placement(cause.call, output_type, len(cause.places), cause.reason, cause.places)


def table(placements: Sequence[Placement]) -> str:
    """Return the placements as text, those of the fallback first."""
    return "\n".join(str(each) for each in sorted(placements, key=lambda each: not each.reason))
