"""Graph breaks of TorchDynamo as data: where Python runs between two functions of a module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fx_importer.fx_graph.function_signature import name_from_json, names_from_json

_SHOWN = 6


@dataclass(frozen=True)
class GraphBreak:
    """A graph break of TorchDynamo: Python that runs between two functions of a module."""

    reason: str
    """TorchDynamo's reason, which may have several lines."""
    where: str | None
    """``file:line`` of the user's code."""
    source: str | None
    """The source text of that line."""
    message: str = ""
    """The reason in a sentence."""
    remedy: str = ""
    """What would remove the break; empty if nothing is known."""
    after: str | None = None
    """The function of the module that ends here; None if the break comes before the first one."""
    before: str | None = None
    """The function that runs next; None if there is none."""
    operators: tuple[str, ...] = ()
    """The operators that PyTorch runs there, between the functions."""

    def __str__(self) -> str:
        line = f": {self.source}" if self.source else ""
        lines = [self.message or self.reason]
        lines += [f"    at {self.where}{line}"] if self.where else []
        if self.operators:
            more = f", ... {len(self.operators) - _SHOWN} more" if len(self.operators) > _SHOWN else ""
            lines.append(f"    PyTorch runs {', '.join(self.operators[:_SHOWN])}{more}")
        lines += [f"    try: {self.remedy}"] if self.remedy else []
        return "\n".join(lines)


def graph_break_from_json(facts: Mapping[str, Any]) -> GraphBreak:
    """Return the graph break of a JSON object; raise ValueError or TypeError if it is none."""
    operators = names_from_json(facts.get("operators", ()))
    for name, value in facts.items():
        if name != "operators" and (value is not None or name in ("reason", "message", "remedy")):
            name_from_json(value)
    return GraphBreak(**{**facts, "operators": operators})
