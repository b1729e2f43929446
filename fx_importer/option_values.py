"""Options as values by name, and back: what the command line reads, and what reports hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, get_type_hints

from fx_importer.options import (
    DecompositionOptions,
    ExportOptions,
    ImportOptions,
    LoweringOptions,
    Options,
    RunOptions,
    TosaTarget,
)
from fx_importer.output_types import OutputType

GROUPS = {
    "export": ExportOptions,
    "decompositions": DecompositionOptions,
    "importing": ImportOptions,
    "lowering": LoweringOptions,
    "running": RunOptions,
}
"""The fields of `Options` that can be spelled, on the command line and in reports, and what they hold. No two fields in
them share a name."""

NOT_SPELLED = {
    "dynamic_shapes",  # a Python value; an exported program (.pt2) carries its own
    *("table", "extra", "pipeline"),  # of Python functions
    "func_visibility",  # for a module of several functions; the command line imports one
}


def spelled_fields(group: type) -> list[str]:
    """Return the names of the fields of an options class that can be spelled."""
    return [each.name for each in fields(group) if each.name not in NOT_SPELLED]


def read_options(values: Mapping[str, Any]) -> Options:
    """Return the options that ``values`` spell, by the names of the fields; what is left out has its default.

    Raises:
        UsageError: for a value that is none.
    """
    groups: dict[str, Any] = {}
    for name, group in GROUPS.items():
        hints = get_type_hints(group)
        given = [each for each in spelled_fields(group) if each in values]
        groups[name] = group(**{each: _read(values[each], hints[each]) for each in given})
    return Options(output_type=OutputType.get(values.get("output_type", Options.output_type)), **groups)


def _read(given: Any, hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint.get(given)  # type: ignore[attr-defined]
    if hint == tuple[OutputType, ...]:
        return tuple(OutputType.get(each) for each in given)
    if hint == TosaTarget | None:
        return None if given is None else TosaTarget.get(given)
    return tuple(given) if isinstance(given, list) else given


def spelled(options: Options) -> dict[str, Any]:
    """Return what `read_options` reads: the values that are not their defaults, as JSON can hold them."""
    found: dict[str, Any] = {"output_type": options.output_type.value}
    for name, group in GROUPS.items():
        for each in spelled_fields(group):
            value = getattr(getattr(options, name), each)
            if value != getattr(group(), each):
                found[each] = _spelled(value)
    return found


def _spelled(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, TosaTarget):
        return str(value)
    if not isinstance(value, tuple):
        return value
    names = [_spelled(each) for each in value]  # rules in Python cannot be spelled; names of them can
    return [each for each in names if isinstance(each, str)]
