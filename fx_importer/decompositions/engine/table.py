"""Decomposition rules and immutable tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch._decomp import get_decompositions
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from fx_importer.decompositions.engine.own_calls import OwnCallRule
from fx_importer.errors import UsageError
from fx_importer.fx_graph.operators import MissingOperator

if TYPE_CHECKING:
    from fx_importer.decompositions.engine.local.recorded_replacements import RecordedReplacements

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

    def as_python(self, expression: Callable[[Any], str]) -> str:
        """Return the Python expression of an equal object; ``expression`` writes its parts."""
        return f"fx_importer.decomposes({', '.join(map(expression, self.operators))})({expression(self.rule)})"


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
    keeps: bool = False
    """Whether the operator is kept although it has a rule, which corrects arguments and results, or checks the call."""

    @property
    def rule_name(self) -> str:
        """The qualified name of the rule; empty if the operator is kept."""
        return "" if self.rule is None or self.keeps else name_of_rule(self.rule)


class DecompositionTable(Mapping[OpOverload, DecompositionRule]):
    """An immutable mapping from operators to rules. Each method returns a new table, or this one if nothing changes.

    Methods take ``because``: the reason, which `lines` holds with the rule.
    """

    def __init__(self, rules: Mapping[OpOverload, DecompositionRule] | None = None, *, because: str = ""):
        self._lines: Mapping[OpOverload, TableLine] = {
            key: TableLine(rule, because) for key, rule in (rules or {}).items()
        }
        self.recorded: RecordedReplacements | None = None
        """Replacements that the rules made, for a table without rules that may change."""

    @property
    def lines(self) -> Mapping[OpOverload, TableLine]:
        """The lines of the table: operators with a rule, and operators that are kept."""
        return MappingProxyType(self._lines)

    @cached_property
    def rules(self) -> Mapping[OpOverload, DecompositionRule]:
        """The rules by operator, without operators that are kept. Computed once for each table."""
        return MappingProxyType({key: line.rule for key, line in self._lines.items() if line.rule is not None})

    def __getitem__(self, operator: OpOverload) -> DecompositionRule:
        return self.rules[operator]

    def __iter__(self) -> Iterator[OpOverload]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def _with(self, lines: Mapping[OpOverload, TableLine]) -> DecompositionTable:
        lines = {key: line for key, line in lines.items() if not isinstance(key, MissingOperator)}
        if not lines:
            return self
        table = DecompositionTable()
        table._lines = {**self._lines, **lines}
        return table

    def recording(self, recorded: RecordedReplacements) -> DecompositionTable:
        """Return the table with a place for replacements that its rules make, which must never change."""
        table = DecompositionTable()
        table._lines, table.recorded = self._lines, recorded
        return table

    def updated(self, other: DecompositionTable) -> DecompositionTable:
        """Return the table with the lines of ``other``, which take precedence."""
        return self._with(other._lines) if self._lines else other

    def keeping(self, *operators: Operator, because: str = "") -> DecompositionTable:
        """Return the table with ``operators`` kept."""
        return self._with(dict.fromkeys(overloads(operators), TableLine(None, because)))

    def correcting(self, rules: Mapping[OpOverload, DecompositionRule], because: str = "") -> DecompositionTable:
        """Return the table with operators kept, and ``rules`` that correct or check their calls."""
        return self._with({operator: TableLine(rule, because, keeps=True) for operator, rule in rules.items()})

    @cached_property
    def decomposed(self) -> frozenset[OpOverload]:
        """The operators with a rule that are not kept. Computed once for each table."""
        return frozenset(operator for operator in self.rules if not self._lines[operator].keeps)

    def adding(self, *decompositions: Decomposition, because: str = "") -> DecompositionTable:
        """Return the table with rules for operators that have none.

        Raises:
            UsageError: if an operator has a rule already; `replacing` replaces it.
        """
        return self._with(self._added(decompositions, because, self._lines))

    def replacing(self, *decompositions: Decomposition, because: str = "") -> DecompositionTable:
        """Return the table with these rules in place of its own for their operators.

        Raises:
            UsageError: if two of ``decompositions`` are of one operator.
        """
        return self._with(self._added(decompositions, because, {}))

    @staticmethod
    def _added(
        decompositions: Iterable[Decomposition], because: str, present: Mapping[OpOverload, TableLine]
    ) -> dict[OpOverload, TableLine]:
        """Return lines for ``decompositions``. Raises `UsageError` for a second rule of an operator."""
        lines: dict[OpOverload, TableLine] = {}
        for decomposition in decompositions:
            for operator in decomposition.operators:
                other = lines.get(operator, present.get(operator))
                if other is not None and other.rule is not None:
                    raise UsageError(
                        f"{operator} has two decompositions, {other.rule_name} and "
                        f"{name_of_rule(decomposition.rule)}: "
                        "drop one, or say table.replacing(...) instead of table.adding(...)"
                    )
                lines[operator] = TableLine(decomposition.rule, because)
        return lines

    def preferring(self, *decompositions: Decomposition, because: str = "") -> DecompositionTable:
        """Return the table with these rules first; where one returns ``NotImplemented``, its own rule applies."""
        lines: dict[OpOverload, TableLine] = {}
        for decomposition in decompositions:
            for operator in decomposition.operators:
                other = lines.get(operator, self._lines.get(operator))
                if other is None or other.rule is None:
                    lines[operator] = TableLine(decomposition.rule, because)
                else:
                    reasons = dict.fromkeys(filter(None, (because, other.reason)))
                    rule = LayeredRule(decomposition.rule, other.rule)
                    lines[operator] = TableLine(rule, "; else: ".join(reasons))
        return self._with(lines)

    def from_torch(self, *operators: Operator, because: str = "") -> DecompositionTable:
        """Return the table with torch's decompositions of ``operators``; of a packet, where an overload has one.

        Raises:
            UsageError: if torch has none for an operator, or the table has a rule for it already.
        """
        rules: list[Decomposition] = []
        for operator in operators:
            if isinstance(operator, MissingOperator):
                continue
            if not (decompositions := get_decompositions([operator])):
                raise UsageError(f"torch has no decomposition of {operator}")
            # Overloads of a packet may have different decompositions.
            rules += (Decomposition((overload,), rule) for overload, rule in overloads_only(decompositions).items())
        return self.adding(*rules, because=because)


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
    if isinstance(rule, Decomposition | OwnCallRule):
        return name_of_rule(rule.rule)
    function = rule.func if isinstance(rule, partial) else rule
    name = str(getattr(function, "__qualname__", repr(function)))
    return f"{getattr(function, '__module__', '?')}.{name.partition('.<locals>')[0]}"
