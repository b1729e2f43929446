"""The text form of options, for the command line and for reports."""

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
)
from fx_importer.output_types import OutputType, TosaTarget

GROUPS = {
    "export": ExportOptions,
    "decompositions": DecompositionOptions,
    "importing": ImportOptions,
    "lowering": LoweringOptions,
    "running": RunOptions,
}
"""The fields of `Options` with a text form, and their classes. Names of these
fields are unique."""

WITHOUT_TEXT = {
    "dynamic_shapes",  # a Python value; an exported program (.pt2) has its own
    *("table", "extra", "pipeline"),  # of Python functions
    "func_visibility",  # for a module of several functions; the command line imports one
}


def fields_with_text(group: type) -> list[str]:
    """Return the names of the fields of an options class that have a text form."""
    return [each.name for each in fields(group) if each.name not in WITHOUT_TEXT]


def options_from_text(values: Mapping[str, Any]) -> Options:
    """Return the options with the ``values`` of these fields, and defaults for the others.

    Raises:
        UsageError: for an invalid value.
    """
    groups: dict[str, Any] = {}
    for name, group in GROUPS.items():
        hints = get_type_hints(group)
        given = [each for each in fields_with_text(group) if each in values]
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


def options_to_text(options: Options) -> dict[str, Any]:
    """Return the values that differ from their defaults, by field name, as JSON values."""
    found: dict[str, Any] = {"output_type": options.output_type.value}
    for name, group in GROUPS.items():
        for each in fields_with_text(group):
            value = getattr(getattr(options, name), each)
            if value != getattr(group(), each):
                found[each] = _to_text(value)
    return found


def _to_text(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, TosaTarget):
        return str(value)
    if not isinstance(value, tuple):
        return value
    names = [_to_text(each) for each in value]  # rules in Python have no text form, but names of registries do
    return [each for each in names if isinstance(each, str)]
