"""Decompositions as values: a rule knows the operators it replaces; a table is an immutable collection of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch._decomp import get_decompositions
from torch._ops import OpOverload, OpOverloadPacket

from fx_importer.errors import UsageError

Rule = Callable[..., Any]
"""Takes an operator's arguments and computes its result with other operators."""
Operator = OpOverload | OpOverloadPacket
"""An overload, or a packet, which stands for all of its overloads."""


@dataclass(frozen=True)
class Decomposition:
    """A rule, and the operators that it replaces. Calling it calls the rule."""

    operators: tuple[OpOverload, ...]
    rule: Rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result of the operators."""
        return self.rule(*args, **kwargs)


def decomposes(*operators: Operator) -> Callable[[Rule], Decomposition]:
    """Label a function as the decomposition of ``operators``. It enters a table by `DecompositionTable.adding`."""
    return lambda rule: Decomposition(tuple(overloads(operators)), rule)


def overloads(operators: Iterable[Operator]) -> Iterator[OpOverload]:
    """Yield ``operators``, each packet as its overloads.

    Raises:
        UsageError: for what is neither an overload nor a packet.
    """
    for operator in operators:
        if isinstance(operator, OpOverload):
            yield operator
        elif isinstance(operator, OpOverloadPacket):
            yield from (getattr(operator, name) for name in operator.overloads())
        else:
            raise UsageError(
                f"a decomposition is keyed by an operator, such as torch.ops.aten.rms_norm.default, not by {operator!r}"
            )


class DecompositionTable(Mapping[OpOverload, Rule]):
    """An immutable table of rules by operator. Each method returns a new table."""

    def __init__(self, rules: Mapping[OpOverload, Rule] | None = None):
        self._rules: Mapping[OpOverload, Rule] = MappingProxyType(dict(rules or {}))

    def __getitem__(self, operator: OpOverload) -> Rule:
        return self._rules[operator]

    def __iter__(self) -> Iterator[OpOverload]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def keeping(self, *operators: Operator) -> DecompositionTable:
        """Leave ``operators`` whole."""
        kept = set(overloads(operators))
        return DecompositionTable({operator: rule for operator, rule in self.items() if operator not in kept})

    def adding(self, *decompositions: Decomposition) -> DecompositionTable:
        """Add rules for operators that have none.

        Raises:
            UsageError: for an operator that has a rule: `replacing` is for that.
        """
        rules = dict(self)
        for each in decompositions:
            for operator in each.operators:
                if (there := rules.get(operator)) is not None:
                    raise UsageError(
                        f"{operator} has two decompositions, {_name(there)} and {_name(each.rule)}: "
                        "drop one, or say table.replacing(...) instead of table.adding(...)"
                    )
                rules[operator] = each.rule
        return DecompositionTable(rules)

    def replacing(self, *decompositions: Decomposition) -> DecompositionTable:
        """Use these rules instead of those that the table has for their operators."""
        return self.keeping(*(operator for each in decompositions for operator in each.operators)).adding(
            *decompositions
        )

    def preferring(self, *decompositions: Decomposition) -> DecompositionTable:
        """Use these rules, and where one returns ``NotImplemented``, what the table has for the operator."""
        table = self
        for each in decompositions:
            layered = (
                Decomposition((operator,), _first_of(each.rule, table.get(operator))) for operator in each.operators
            )
            table = table.replacing(*layered)
        return table

    def from_torch(self, *operators: Operator) -> DecompositionTable:
        """Add the rules of torch's own library for ``operators``; of a packet, for those overloads that have one.

        Raises:
            UsageError: for an operator without one, or one that has a rule in this table already.
        """
        table = self
        for operator in operators:
            if not (found := get_decompositions([operator])):
                raise UsageError(f"torch has no decomposition of {operator}")
            # A packet's overloads may be decomposed by functions of their own.
            rules = overloads_only(found).items()
            table = table.adding(*(Decomposition((overload,), rule) for overload, rule in rules))
        return table


def _first_of(rule: Rule, otherwise: Rule | None) -> Rule:
    if otherwise is None:
        return rule

    def layered(*args: Any, **kwargs: Any) -> Any:
        result = rule(*args, **kwargs)
        return otherwise(*args, **kwargs) if result is NotImplemented else result

    return layered


def overloads_only(rules: Mapping[Any, Rule]) -> dict[OpOverload, Rule]:
    """Return the rules of ``rules`` whose key is an overload."""
    return {operator: rule for operator, rule in rules.items() if isinstance(operator, OpOverload)}


def _name(rule: Rule) -> str:
    return f"{getattr(rule, '__module__', '?')}.{getattr(rule, '__qualname__', repr(rule))}"
