"""The text form of options, for the command line and for reports."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, get_type_hints

from fx_importer.options import GROUPS, OPTIONS, Options
from fx_importer.output_types import OutputType, TosaTarget


def options_with_text(group: str) -> list[str]:
    """Return the names of the options of a field of `Options` that have a text form."""
    return [option.name for option in OPTIONS if option.group == group and option.has_text]


def options_from_text(values: Mapping[str, Any]) -> Options:
    """Return the options with the ``values`` of these fields, and defaults for the others.

    Raises:
        UsageError: for an invalid value.
    """
    groups: dict[str, Any] = {}
    for group, kind in GROUPS.items():
        hints = get_type_hints(kind.options)
        names = [name for name in options_with_text(group) if name in values]
        groups[group] = kind.options(**{name: _read(values[name], hints[name]) for name in names})
    return Options(output_type=OutputType.get(values.get("output_type", Options.output_type)), **groups)


def _read(value: Any, hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint.get(value)  # type: ignore[attr-defined]
    if hint == tuple[OutputType, ...]:
        return tuple(OutputType.get(name) for name in value)
    if hint == TosaTarget | None:
        return None if value is None else TosaTarget.get(value)
    return tuple(value) if isinstance(value, list) else value


def options_to_text(options: Options) -> dict[str, Any]:
    """Return the values that differ from their defaults, by field name, as JSON values."""
    record: dict[str, Any] = {"output_type": options.output_type.value}
    for option in OPTIONS:
        if option.group and option.has_text:
            value = getattr(getattr(options, option.group), option.name)
            if value != option.default:
                record[option.name] = _to_text(value)
    return record


def _to_text(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, TosaTarget):
        return str(value)
    if not isinstance(value, tuple):
        return value
    names = [_to_text(item) for item in value]  # rules in Python have no text form, but names of registries do
    return [name for name in names if isinstance(name, str)]
