"""Expected failures of a model's lowering, by output type."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fx_importer.diagnostics.causes import Cause
from fx_importer.diagnostics.html import preformatted
from fx_importer.errors import UnsupportedNode, described
from fx_importer.output_types import OutputType


@dataclass(frozen=True)
class Expected:
    """Nodes and operators of a model that one output type does not support. True if it supports all."""

    unsupported_nodes: tuple[UnsupportedNode, ...] = ()
    """Nodes that cannot be imported."""
    causes: tuple[Cause, ...] = ()
    """Operators that cannot be lowered."""
    remark: str = ""
    """Why ``causes`` may be incomplete, if they may."""

    def __bool__(self) -> bool:
        return not self.unsupported_nodes and not self.causes


@dataclass(frozen=True)
class Explanation:
    """Expected failures by output type. True if every output type supports the model."""

    expected: Mapping[OutputType, Expected]
    assumptions: tuple[str, ...] = ()
    """What the capture of the model assumes of the values of its inputs and buffers."""

    def __bool__(self) -> bool:
        return all(self.expected.values())

    def __getitem__(self, output_type: str | OutputType) -> Expected:
        return self.expected[OutputType.get(output_type)]

    def __repr__(self) -> str:
        parts = [f"{kind.value} {_verdict(outcome)}" for kind, outcome in self.expected.items()]
        return f"<Explanation {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as lists, dictionaries and strings: by output type, and ``assumptions`` if any."""
        expected = {output_type.value: dataclasses.asdict(outcome) for output_type, outcome in self.expected.items()}
        return {**expected, "assumptions": list(self.assumptions)} if self.assumptions else expected

    def __str__(self) -> str:
        count = "1 assumption" if len(self.assumptions) == 1 else f"{len(self.assumptions)} assumptions"
        lines = [f"captured under {count}:"] if self.assumptions else []
        lines += [f"  {assumption}" for assumption in self.assumptions]
        for output_type, outcome in self.expected.items():
            lines.append(f"{output_type.value}: {_verdict(outcome)}")
            texts = [*map(str, outcome.unsupported_nodes), described(outcome.causes)]
            lines += [f"  {line}" for text in texts for line in text.splitlines()]
        return "\n".join(lines)


def _verdict(expected: Expected) -> str:
    if expected:
        return "supported"
    count = len(expected.unsupported_nodes) + len({cause.op for cause in expected.causes})
    return f"{count} {'problem' if count == 1 else 'problems'}"
