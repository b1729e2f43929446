"""The table of faults in C++ lowerings of operators that our tables decompose.

``faults.json`` is measured: ``python -m testing.kept_sweep`` keeps each operator alone, lowers calls of it in each
dtype, and compares the results with eager PyTorch's.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from torch._ops import OpOverload

from fx_importer.decompositions.engine.kept.conditions import conditions_of, has_dynamic_sizes
from fx_importer.output_types import OutputType

TABLE = Path(__file__).with_name("faults.json")
"""A line for operators with the same rows: their names by output type, ``right``, the conditions under which results
equal eager's, and ``faults``."""


class Severity(Enum):
    """How wrong a lowering is."""

    WRONG = "wrong"
    """Results are others than eager's on usual values, have another shape, or the process ends."""
    INEXACT = "inexact"
    """Results differ a little, on large or small values, or in few elements."""
    SPECIAL = "special"
    """Results differ for NaN and infinities only."""


_ORDER = tuple(Severity)


@dataclass(frozen=True)
class Fault:
    """A row of the table."""

    conditions: str
    """What `conditions_of` returns, as text."""
    severity: Severity
    what: str
    """The difference from eager, as the end of a sentence."""


@functools.cache
def fault_table() -> Mapping[str, Mapping[str, Any]]:
    """Return ``right`` and ``faults`` by output type and operator."""
    table: dict[str, dict[str, Any]] = {}
    for entry in json.loads(TABLE.read_text(encoding="utf-8")):
        for output_type, names in entry["operators"].items():
            table.setdefault(output_type, {}).update(dict.fromkeys(names, entry))
    return table


def write_fault_table(table: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what `fault_table` returns, a line for operators with the same rows."""
    shared: dict[str, tuple[Mapping[str, Any], dict[str, list[str]]]] = {}
    for output_type, entries in sorted(table.items()):
        for name, entry in sorted(entries.items()):
            rows = {"right": entry["right"], "faults": entry["faults"]}
            _, operators = shared.setdefault(json.dumps(rows), (rows, {}))
            operators.setdefault(output_type, []).append(name)
    lines = [json.dumps({"operators": operators, **rows}) for rows, operators in shared.values()]
    TABLE.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


@functools.cache
def faults_of(operator: str, output_type: OutputType) -> tuple[Fault, ...]:
    """Return the rows of an operator, ``aten.gelu.default``."""
    entry = fault_table().get(output_type.value, {}).get(operator, {})
    return tuple(Fault(row["when"], Severity(row["severity"]), row["what"]) for row in entry.get("faults", ()))


def operators_with_faults(output_type: OutputType) -> frozenset[str]:
    """Return the names of the operators that have rows."""
    return frozenset(name for name, entry in fault_table().get(output_type.value, {}).items() if entry["faults"])


def is_measured(operator: str, output_type: OutputType) -> bool:
    """Return whether the C++ lowering takes calls of the operator that were compared with eager."""
    return operator in fault_table().get(output_type.value, {})


def fault_of(
    operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], output_type: OutputType
) -> Fault | None:
    """Return the worst row that a call of ``operator`` meets.

    A call of dtypes that were not measured meets the rows of the dtypes that were.
    """
    rows = faults_of(str(operator), output_type)
    if not rows:
        return None
    dtype, *rest = conditions_of(operator, args, kwargs)
    wanted = {" ".join((dtype, *rest))}
    if has_dynamic_sizes(args, kwargs):
        wanted |= {f"{key} dynamic" for key in wanted}
    met = [row for row in rows if row.conditions in wanted]
    measured = {*fault_table()[output_type.value][str(operator)]["right"], *(row.conditions for row in rows)}
    if not met and not wanted & measured:
        met = [row for row in rows if row.conditions.split(" ")[1:] == rest]
        if any(key.split(" ")[1:] == rest for key in measured - {row.conditions for row in rows}):
            met = [replace(row, severity=max(row.severity, Severity.INEXACT, key=_ORDER.index)) for row in met]
    return min(met, key=lambda row: _ORDER.index(row.severity), default=None)
