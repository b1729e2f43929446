"""What a model's lowering will fail for, output type by output type, as a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fx_importer.diagnostics.causes import Cause
from fx_importer.errors import UnsupportedNode, warn_renamed
from fx_importer.output_types import OutputType


@dataclass(frozen=True)
class Expected:
    """What one output type refuses of a model."""

    unsupported_nodes: tuple[UnsupportedNode, ...] = ()
    """What cannot be imported."""
    causes: tuple[Cause, ...] = ()
    """The operators that cannot be lowered."""

    def __bool__(self) -> bool:
        return not self.unsupported_nodes and not self.causes

    @property
    def refusals(self) -> tuple[UnsupportedNode, ...]:
        """The name of ``unsupported_nodes`` in version 0.1."""
        warn_renamed("Expected.refusals", "unsupported_nodes")
        return self.unsupported_nodes


@dataclass(frozen=True)
class Explanation:
    """What will become of a model. True if every output type takes it."""

    expected: Mapping[OutputType, Expected]

    def __bool__(self) -> bool:
        return all(self.expected.values())

    def __getitem__(self, output_type: str | OutputType) -> Expected:
        return self.expected[OutputType.get(output_type)]

    def to_dict(self) -> dict[str, Any]:
        """Return it in lists, dictionaries and strings."""
        return {output_type.value: dataclasses.asdict(each) for output_type, each in self.expected.items()}

    def __str__(self) -> str:
        lines: list[str] = []
        for output_type, each in self.expected.items():
            if each:
                lines.append(f"{output_type.value}: takes it whole")
                continue
            count = len(each.unsupported_nodes) + len({cause.op for cause in each.causes})
            lines.append(f"{output_type.value}: {count} {'thing is' if count == 1 else 'things are'} refused")
            lines += [
                f"  {line}" for found in (*each.unsupported_nodes, *each.causes) for line in str(found).splitlines()
            ]
        return "\n".join(lines)
