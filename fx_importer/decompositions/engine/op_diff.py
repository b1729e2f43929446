"""Comparison of the operators of a program before and after its decomposition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram


@dataclass(frozen=True)
class OpDiff:
    """Numbers of calls of each operator, by its name, in a graph and its subgraphs, before and after."""

    before: Mapping[str, int]
    after: Mapping[str, int]

    @property
    def operators(self) -> list[str]:
        """All operators, sorted by name, those whose number of calls changes first."""
        return sorted({*self.before, *self.after}, key=lambda name: (not self.changes(name), name))

    def changes(self, name: str) -> bool:
        """Return whether the number of calls of the operator differs."""
        return self.before.get(name, 0) != self.after.get(name, 0)

    def __str__(self) -> str:
        sizes = (f"{sum(counts.values())} operators of {len(counts)} kinds" for counts in (self.before, self.after))
        return " before, ".join(sizes) + " after"


def diff_operators(before: ExportedProgram, after: ExportedProgram) -> OpDiff:
    """Return the numbers of calls of the operators of two programs."""
    return OpDiff(_count(before), _count(after))


def _count(program: ExportedProgram) -> dict[str, int]:
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    targets = (node.target for graph in graphs for node in graph.nodes if node.op == "call_function")
    return dict(Counter(str(target) for target in targets if isinstance(target, OpOverload | HigherOrderOperator)))
