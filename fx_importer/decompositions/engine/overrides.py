"""Overrides of a decomposition table by users: operators to keep, and rules to add."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from fx_importer.decompositions.engine.table import Decomposition, DecompositionRule, DecompositionTable, overloads
from fx_importer.errors import UsageError
from fx_importer.fx_graph.operators import operator_named


@dataclass(frozen=True)
class Overrides:
    """Operators to keep, and rules that take precedence over a table's own."""

    keep: tuple[OpOverload, ...] = ()
    extra: tuple[Decomposition, ...] = ()

    @classmethod
    def of(cls, keep: Iterable[Any], extra: Mapping[Any, Any]) -> Overrides:
        """Return the overrides for the options ``keep`` and ``extra``.

        An operator may be given by its name, ``aten.foo`` or ``aten.foo.default``.

        Raises:
            UsageError: listing all errors: an unknown operator, a rule that is not callable, an operator that is both
                kept and decomposed.
        """
        wrong: list[str] = []
        kept = list(_resolve(keep, "keep", wrong))
        rules: dict[Any, DecompositionRule] = {}
        for key, rule in extra.items():
            operators_of_key = list(_resolve([key], "extra", wrong))
            if not callable(rule):
                wrong.append(f"extra: the decomposition of {key} is not a function but {rule!r}")
            elif isinstance(key, OpOverloadPacket) or (isinstance(key, str) and len(operators_of_key) > 1):
                rules = dict.fromkeys(operators_of_key, rule) | rules  # an overload takes precedence over its packet
            else:
                rules |= dict.fromkeys(operators_of_key, rule)
        both = [str(operator) for operator in rules if operator in set(kept)]
        if both:
            wrong.append(f"{', '.join(both)}: named in keep and in extra; an operator is kept or decomposed, not both")
        if wrong:
            raise UsageError("\n".join(wrong))
        return cls(tuple(kept), tuple(Decomposition((operator,), rule) for operator, rule in rules.items()))

    def applied_to(self, table: DecompositionTable) -> DecompositionTable:
        """Return ``table`` with these overrides."""
        return table.keeping(*self.keep, because="named in keep").replacing(*self.extra, because="given in extra")


def _resolve(operators: Iterable[Any], option: str, wrong: list[str]) -> Iterator[Any]:
    """Yield the overloads of ``operators``; append an error to ``wrong`` for each entry that is not an operator."""
    for operator in operators:
        if isinstance(operator, OpOverload | OpOverloadPacket):
            yield from overloads([operator])
        elif isinstance(operator, HigherOrderOperator) and option == "extra":
            yield operator
        elif isinstance(operator, str) and (named := operator_named(operator)) is not None:
            yield from overloads([named])
        else:
            wrong.append(f"{option}: no operator is named {operator!r}{_suggestion(str(operator))}")


def _suggestion(name: str) -> str:
    """Return the names of operators that are similar to ``name``, as the end of a sentence."""
    qualified = [overload.replace("::", ".") for overload in torch._C._dispatch_get_all_op_names()]
    name = name.removeprefix("torch.").removeprefix("ops.")
    parts = name.split(".")
    if len(parts) == 3 and isinstance(packet := operator_named(".".join(parts[:2])), OpOverloadPacket):
        return f"; the overloads of {packet} are {', '.join(packet.overloads())}"
    packets = {".".join(overload.split(".")[:2]) for overload in qualified}
    close = difflib.get_close_matches(name, packets, cutoff=0.75)
    if not close and len(parts) == 1:
        close = sorted(packets & {f"aten.{name}"})
    close = close or difflib.get_close_matches(f"aten.{name}", packets, cutoff=0.75)
    return f"; is it {' or '.join(close)}?" if close else ""
