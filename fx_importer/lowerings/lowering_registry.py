"""Registries of users' lowerings, and the precedence of their rules."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any

from fx_importer.decompositions import Decomposition, DecompositionTable
from fx_importer.errors import UsageError
from fx_importer.lowerings.lowering_rules import External, Lowering, described
from fx_importer.output_types import OutputType

GROUP = "fx_importer.lowerings"
"""The group of entry points of lowerings: each is a `Lowerings`, or an iterable of rules."""

LoweringRule = Decomposition | Lowering | External


class Lowerings:
    """An immutable registry of rules, at most one for each operator and output type.

    `decomposes`, `lowers` and `external` make rules.
    """

    def __init__(self, rules: Iterable[LoweringRule] = ()):
        """Raise `UsageError` for objects other than rules, and for two rules for an operator and output type."""
        self._rules = tuple(rules)
        rules_: dict[tuple[Any, OutputType], LoweringRule] = {}
        for rule in self._rules:
            if not isinstance(rule, LoweringRule):
                raise UsageError(
                    f"lowerings: {rule!r} is not a rule; label a function with decomposes(op), lowers(op, into=...) or "
                    "external(op, symbol=...)"
                )
            for operator in rule.operators:
                for into in rule.into if isinstance(rule, Lowering) else OutputType:
                    other = rules_.setdefault((operator, into), rule)
                    if other is not rule:
                        raise UsageError(
                            f"lowerings: {operator} has two rules for {into.value}, {named(other)} and {named(rule)}: "
                            "drop one; or pass them in two Lowerings, the one to ask first before the other"
                        )

    def __iter__(self) -> Iterator[LoweringRule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def as_python(self, expression: Callable[[Any], str]) -> str:
        """Return the Python expression of an equal registry; ``expression`` writes its rules."""
        return f"fx_importer.Lowerings({expression(self._rules)})"

    def adding(self, *rules: LoweringRule) -> Lowerings:
        """Return a registry with ``rules`` added. Raises `UsageError` as the class does."""
        return Lowerings((*self._rules, *rules))


def named(rule: LoweringRule) -> str:
    """Return the name of a rule for errors: its function and location."""
    return described(rule.rule) if isinstance(rule, Decomposition) else str(rule)


def layers(items: Iterable[Any]) -> list[Lowerings]:
    """Return the registries of the option ``lowerings`` in order of precedence.

    Single rules come first, as one registry; then each registry, given as such or by name: of an entry point of the
    group ``fx_importer.lowerings``, or ``package.module:name``.

    Raises:
        UsageError: for other objects, and for two rules for an operator and output type in one registry.
    """
    single: list[Any] = []
    rest: list[Lowerings] = []
    for item in items:
        if isinstance(item, Lowerings):
            rest.append(item)
        elif isinstance(item, str):
            rest.append(_offered(item))
        else:
            single.append(item)
    return [*([Lowerings(single)] if single else []), *rest]


def listed(items: Any) -> tuple[Any, ...]:
    """Return the option ``lowerings``, one entry or several, as a tuple."""
    one = isinstance(items, str | Lowerings) or not isinstance(items, Iterable)
    return (items,) if one else tuple(items)


def table_with(layers: Iterable[Lowerings], table: DecompositionTable, output_type: OutputType) -> DecompositionTable:
    """Return ``table`` with the decompositions among the rules, and without operators that other rules lower."""
    seen: set[Any] = set()
    for rule in (rule for layer in layers for rule in layer):
        if isinstance(rule, Lowering) and not rule.is_for(output_type):
            continue
        new = [operator for operator in rule.operators if operator not in seen]
        seen.update(new)
        if isinstance(rule, Decomposition):
            table = table.replacing(Decomposition(tuple(new), rule.rule), because="given in lowerings")
        else:
            table = table.keeping(*new, because="lowered by a rule in lowerings")
    return table


def stubs_of(layers: Iterable[Lowerings]) -> dict[str, Callable[..., Any]]:
    """Return the stubs of external calls, which PyTorch runs, by name of the operator."""
    stubs: dict[str, Callable[..., Any]] = {}
    for rule in (rule for layer in layers for rule in layer):
        if isinstance(rule, External) and rule.stub is not None:
            for operator in rule.operators:
                stubs.setdefault(str(operator), rule.stub)
    return stubs


def _offered(name: str) -> Lowerings:
    """Return the registry of an entry point or of ``package.module:name``."""
    load: Callable[[], Any]
    if ":" in name:
        module, _, attribute = name.partition(":")
        load = lambda: getattr(importlib.import_module(module), attribute)  # noqa: E731
    else:
        points = {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
        if name not in points:
            there = f"there are {', '.join(sorted(points))}" if points else "none is installed"
            raise UsageError(
                f"lowerings: no package offers '{name}' in the entry points '{GROUP}': {there}; 'package.module:name' "
                "names what can be imported"
            )
        load = points[name].load
    try:
        offered = load()
    except Exception as error:
        raise UsageError(f"lowerings: '{name}' cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(offered, Iterable) or isinstance(offered, str):
        raise UsageError(f"lowerings: '{name}' is {offered!r}, and not a Lowerings or a list of rules")
    return offered if isinstance(offered, Lowerings) else Lowerings(offered)
