"""Decomposition rules and immutable tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from torch._decomp import get_decompositions
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from fx_importer.errors import UsageError
from fx_importer.fx_graph.operators import MissingOperator

DecompositionRule = Callable[..., Any]
"""A function that takes an operator's arguments and computes its result with other operators."""
Operator = OpOverload | OpOverloadPacket | HigherOrderOperator | MissingOperator
"""An overload, or a packet, which stands for all its overloads."""


@dataclass(frozen=True)
class Decomposition:
    """A rule and the operators that it decomposes. Calling it calls the rule."""

    operators: tuple[OpOverload, ...]
    rule: DecompositionRule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the rule."""
        return self.rule(*args, **kwargs)


def decomposes(*operators: Operator) -> Callable[[DecompositionRule], Decomposition]:
    """Decorate a function as the decomposition of ``operators``; `DecompositionTable.adding` puts it into a table."""
    return lambda rule: Decomposition(tuple(overloads(operators)), rule)


def overloads(operators: Iterable[Operator]) -> Iterator[Any]:
    """Yield ``operators``, with each packet expanded to its overloads; skip those that the installed torch lacks.

    A higher-order operator has no overloads, and is yielded itself.

    Raises:
        UsageError: if one is not an operator.
    """
    for operator in operators:
        if isinstance(operator, OpOverload | HigherOrderOperator):
            yield operator
        elif isinstance(operator, OpOverloadPacket):
            yield from (getattr(operator, name) for name in operator.overloads())
        elif not isinstance(operator, MissingOperator):
            raise UsageError(
                f"a decomposition is keyed by an operator, such as torch.ops.aten.rms_norm.default, not by {operator!r}"
            )


@dataclass(frozen=True)
class TableLine:
    """An operator's rule in a table, and the reason for it."""

    rule: DecompositionRule | None
    """None: the operator is kept, even if the table that this one was made from decomposes it."""
    reason: str = ""

    @property
    def rule_name(self) -> str:
        """The qualified name of the rule; empty if the operator is kept."""
        return "" if self.rule is None else name_of_rule(self.rule)


class DecompositionTable(Mapping[OpOverload, DecompositionRule]):
    """An immutable mapping from operators to rules. Each method returns a new table.

    Methods take ``because``: the reason, which `lines` holds with the rule.
    """

    def __init__(self, rules: Mapping[OpOverload, DecompositionRule] | None = None, *, because: str = ""):
        self._lines: Mapping[OpOverload, TableLine] = {
            key: TableLine(rule, because) for key, rule in (rules or {}).items()
        }

    @property
    def lines(self) -> Mapping[OpOverload, TableLine]:
        """The lines of the table: operators with a rule, and operators that are kept."""
        return MappingProxyType(dict(self._lines))

    def __getitem__(self, operator: OpOverload) -> DecompositionRule:
        if (rule := self._lines[operator].rule) is None:
            raise KeyError(operator)
        return rule

    def __iter__(self) -> Iterator[OpOverload]:
        return (operator for operator, line in self._lines.items() if line.rule is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _with(self, lines: Mapping[OpOverload, TableLine]) -> DecompositionTable:
        table = DecompositionTable()
        known = {key: line for key, line in lines.items() if not isinstance(key, MissingOperator)}
        table._lines = {**self._lines, **known}
        return table

    def updated(self, other: DecompositionTable) -> DecompositionTable:
        """Return the table with the lines of ``other``, which take precedence."""
        return self._with(other.lines)

    def keeping(self, *operators: Operator, because: str = "") -> DecompositionTable:
        """Return the table with ``operators`` kept."""
        return self._with(dict.fromkeys(overloads(operators), TableLine(None, because)))

    def adding(self, *decompositions: Decomposition, because: str = "") -> DecompositionTable:
        """Return the table with rules for operators that have none.

        Raises:
            UsageError: if an operator has a rule already; `replacing` replaces it.
        """
        lines: dict[OpOverload, TableLine] = {}
        for each in decompositions:
            for operator in each.operators:
                there = lines.get(operator, self._lines.get(operator))
                if there is not None and there.rule is not None:
                    raise UsageError(
                        f"{operator} has two decompositions, {there.rule_name} and {name_of_rule(each.rule)}: "
                        "drop one, or say table.replacing(...) instead of table.adding(...)"
                    )
                lines[operator] = TableLine(each.rule, because)
        return self._with(lines)

    def replacing(self, *decompositions: Decomposition, because: str = "") -> DecompositionTable:
        """Return the table with these rules in place of its own for their operators."""
        return self.keeping(*(operator for each in decompositions for operator in each.operators)).adding(
            *decompositions, because=because
        )

    def preferring(self, *decompositions: Decomposition, because: str = "") -> DecompositionTable:
        """Return the table with these rules first; where one returns ``NotImplemented``, its own rule applies."""
        table = self
        for each in decompositions:
            for operator in each.operators:
                there = table._lines.get(operator)
                if there is None or there.rule is None:
                    line = TableLine(each.rule, because)
                else:
                    reasons = dict.fromkeys(filter(None, (because, there.reason)))
                    line = TableLine(LayeredRule(each.rule, there.rule), "; else: ".join(reasons))
                table = table._with({operator: line})
        return table

    def from_torch(self, *operators: Operator, because: str = "") -> DecompositionTable:
        """Return the table with torch's decompositions of ``operators``; of a packet, where an overload has one.

        Raises:
            UsageError: if torch has none for an operator, or the table has a rule for it already.
        """
        table = self
        for operator in operators:
            if isinstance(operator, MissingOperator):
                continue
            if not (found := get_decompositions([operator])):
                raise UsageError(f"torch has no decomposition of {operator}")
            # Overloads of a packet may have different decompositions.
            rules = overloads_only(found).items()
            table = table.adding(*(Decomposition((overload,), rule) for overload, rule in rules), because=because)
        return table


@dataclass(frozen=True)
class LayeredRule:
    """Two rules: ``otherwise`` applies where ``first`` returns ``NotImplemented``."""

    first: DecompositionRule
    otherwise: DecompositionRule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.first(*args, **kwargs)
        return self.otherwise(*args, **kwargs) if result is NotImplemented else result


def overloads_only(rules: Mapping[Any, DecompositionRule]) -> dict[OpOverload, DecompositionRule]:
    """Return the rules whose key is an overload."""
    return {operator: rule for operator, rule in rules.items() if isinstance(operator, OpOverload)}


def name_of_rule(rule: DecompositionRule) -> str:
    """Return the qualified names of the functions of ``rule``."""
    if isinstance(rule, LayeredRule):
        return f"{name_of_rule(rule.first)}, else {name_of_rule(rule.otherwise)}"
    if isinstance(rule, Decomposition):
        return name_of_rule(rule.rule)
    function = rule.func if isinstance(rule, partial) else rule
    name = str(getattr(function, "__qualname__", repr(function)))
    return f"{getattr(function, '__module__', '?')}.{name.partition('.<locals>')[0]}"
