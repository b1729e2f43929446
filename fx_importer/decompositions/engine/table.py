"""Decompositions as values: a rule knows the operators it replaces; a table is an immutable collection of rules."""

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
"""Takes an operator's arguments and computes its result with other operators."""
Operator = OpOverload | OpOverloadPacket | HigherOrderOperator | MissingOperator
"""An overload, or a packet, which stands for all of its overloads."""


@dataclass(frozen=True)
class Decomposition:
    """A rule, and the operators that it replaces. Calling it calls the rule."""

    operators: tuple[OpOverload, ...]
    rule: DecompositionRule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result of the operators."""
        return self.rule(*args, **kwargs)


def decomposes(*operators: Operator) -> Callable[[DecompositionRule], Decomposition]:
    """Label a function as the decomposition of ``operators``. It enters a table by `DecompositionTable.adding`."""
    return lambda rule: Decomposition(tuple(overloads(operators)), rule)


def overloads(operators: Iterable[Operator]) -> Iterator[Any]:
    """Yield ``operators``, each packet as its overloads; skip those that the installed torch does not have.

    A higher-order operator has no overloads, and is yielded as it is.

    Raises:
        UsageError: for what is neither an overload nor a packet.
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
    """What a table says of an operator."""

    rule: DecompositionRule | None
    """None: the operator is left whole, whatever a table that this one is made from says."""
    reason: str = ""

    @property
    def rule_name(self) -> str:
        """What computes the operator, by its name."""
        return "" if self.rule is None else name_of_rule(self.rule)


class DecompositionTable(Mapping[OpOverload, DecompositionRule]):
    """An immutable table of rules by operator. Each method returns a new table.

    Each takes ``because``: the reason, which `lines` has beside the rule.
    """

    def __init__(self, rules: Mapping[OpOverload, DecompositionRule] | None = None, *, because: str = ""):
        self._lines: Mapping[OpOverload, TableLine] = {
            key: TableLine(rule, because) for key, rule in (rules or {}).items()
        }

    @property
    def lines(self) -> Mapping[OpOverload, TableLine]:
        """Every operator that the table speaks of: those with a rule, and those that it leaves whole."""
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
        """Take the lines of ``other`` too, and instead of those of this table for the same operators."""
        return self._with(other.lines)

    def keeping(self, *operators: Operator, because: str = "") -> DecompositionTable:
        """Leave ``operators`` whole."""
        return self._with(dict.fromkeys(overloads(operators), TableLine(None, because)))

    def adding(self, *decompositions: Decomposition, because: str = "") -> DecompositionTable:
        """Add rules for operators that have none.

        Raises:
            UsageError: for an operator that has a rule: `replacing` is for that.
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
        """Use these rules instead of those that the table has for their operators."""
        return self.keeping(*(operator for each in decompositions for operator in each.operators)).adding(
            *decompositions, because=because
        )

    def preferring(self, *decompositions: Decomposition, because: str = "") -> DecompositionTable:
        """Use these rules, and where one returns ``NotImplemented``, what the table has for the operator."""
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
        """Add the rules of torch's own library for ``operators``; of a packet, for those overloads that have one.

        Raises:
            UsageError: for an operator without one, or one that has a rule in this table already.
        """
        table = self
        for operator in operators:
            if isinstance(operator, MissingOperator):
                continue
            if not (found := get_decompositions([operator])):
                raise UsageError(f"torch has no decomposition of {operator}")
            # A packet's overloads may be decomposed by functions of their own.
            rules = overloads_only(found).items()
            table = table.adding(*(Decomposition((overload,), rule) for overload, rule in rules), because=because)
        return table


@dataclass(frozen=True)
class LayeredRule:
    """Rules in layers: the second computes what the first returns ``NotImplemented`` for."""

    first: DecompositionRule
    otherwise: DecompositionRule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.first(*args, **kwargs)
        return self.otherwise(*args, **kwargs) if result is NotImplemented else result


def overloads_only(rules: Mapping[Any, DecompositionRule]) -> dict[OpOverload, DecompositionRule]:
    """Return the rules of ``rules`` whose key is an overload."""
    return {operator: rule for operator, rule in rules.items() if isinstance(operator, OpOverload)}


def name_of_rule(rule: DecompositionRule) -> str:
    """Return the names of the functions that ``rule`` consists of."""
    if isinstance(rule, LayeredRule):
        return f"{name_of_rule(rule.first)}, else {name_of_rule(rule.otherwise)}"
    if isinstance(rule, Decomposition):
        return name_of_rule(rule.rule)
    function = rule.func if isinstance(rule, partial) else rule
    name = str(getattr(function, "__qualname__", repr(function)))
    return f"{getattr(function, '__module__', '?')}.{name.partition('.<locals>')[0]}"
