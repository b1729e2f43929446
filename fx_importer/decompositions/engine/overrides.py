"""Overrides of a decomposition table by users: operators to keep, and rules to add."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from fx_importer.decompositions.engine.kept.fault_table import operators_with_faults
from fx_importer.decompositions.engine.kept.kept_rule import KeptRule
from fx_importer.decompositions.engine.local.operator_properties import functional_form, view_form
from fx_importer.decompositions.engine.own_calls import OwnCallRule
from fx_importer.decompositions.engine.table import Decomposition, DecompositionRule, DecompositionTable, overloads
from fx_importer.errors import UsageError
from fx_importer.fx_graph.operators import operator_named
from fx_importer.output_types import OutputType


@dataclass(frozen=True)
class Overrides:
    """Operators to keep, and rules that take precedence over a table's own."""

    keep: tuple[OpOverload, ...] = ()
    extra: tuple[Decomposition, ...] = ()

    @classmethod
    def of(cls, keep: Iterable[Any], extra: Mapping[Any, Any]) -> Overrides:
        """Return the overrides for the options ``keep`` and ``extra``.

        An operator may be given by its name, ``aten.foo`` or ``aten.foo.default``. An in-place operator of ``keep``
        stands for its functional form, which it becomes before programs are decomposed.

        Raises:
            UsageError: listing all errors: an unknown operator, a rule that is not callable, an operator that is both
                kept and decomposed, an operator that writes to its arguments and has no functional form, or a rule
                for it.
        """
        wrong: list[str] = []
        kept = list(_resolve(keep, "keep", wrong))
        rules: dict[Any, DecompositionRule] = {}
        for key, rule in extra.items():
            operators_of_key = list(_resolve([key], "extra", wrong))
            if not callable(rule):
                wrong.append(f"extra: the decomposition of {key} is not a function but {rule!r}")
            elif isinstance(operator_named(key) if isinstance(key, str) else key, OpOverloadPacket):
                rules = dict.fromkeys(operators_of_key, rule) | rules  # an overload takes precedence over its packet
            else:
                rules |= dict.fromkeys(operators_of_key, rule)
        both = [str(operator) for operator in rules if operator in set(kept)]
        if both:
            wrong.append(f"{', '.join(both)}: named in keep and in extra; an operator is kept or decomposed, not both")
        if wrong:
            raise UsageError("\n".join(wrong))
        return cls(tuple(kept), tuple(Decomposition((operator,), rule) for operator, rule in rules.items()))

    def keeping(
        self,
        table: DecompositionTable,
        output_type: OutputType,
        *,
        refuses: bool = True,
        fallback: Sequence[OutputType] = (),
    ) -> DecompositionTable:
        """Return the ``table`` of ``output_type`` with the operators to keep.

        If they are lowered, our rules correct what they can; ``refuses`` tells whether a call that would still be wrong
        is refused. Operators that ``output_type`` does not take are lowered to the types of ``fallback``.
        """
        kept = table.keeping(*self.keep, because="named in keep")
        if output_type.root in LOWERED_TYPES:
            ruled = [operator for operator in self.keep if operator in table]
            types = (output_type.root, *(kind.root for kind in fallback))
            rules = {op: KeptRule(op, table[op], types, "keep=", refuses) for op in ruled}
            kept = kept.correcting(rules, because="named in keep")
        return kept

    def preferring(self, table: DecompositionTable) -> DecompositionTable:
        """Return ``table`` with the rules to add first; where one returns ``NotImplemented``, the table's applies."""
        extra = [
            Decomposition(definition.operators, OwnCallRule(definition.operators, definition.rule))
            for definition in self.extra
        ]
        return table.preferring(*extra, because="given in extra")


def leaving(
    table: DecompositionTable, operators: Iterable[OpOverload], output_type: OutputType, option: str, *, because: str
) -> DecompositionTable:
    """Return ``table`` with ``operators`` left as they are by ``option``, as torch-mlir leaves them.

    If they are lowered, there are warnings of calls whose results differ from eager's.
    """
    operators = tuple(operators)
    plain = table.keeping(*operators, because=because)
    if output_type.root not in LOWERED_TYPES:
        return plain
    faulty = operators_with_faults(output_type.root)
    rules = {op: KeptRule(op, None, (output_type.root,), option, False) for op in operators if str(op) in faulty}
    return plain.correcting(rules, because)


LOWERED_TYPES = (OutputType.LINALG_ON_TENSORS, OutputType.TOSA, OutputType.STABLEHLO)
"""The output types to which C++ lowerings take kept operators; the others hold operators of torch."""


def _resolve(operators: Iterable[Any], option: str, wrong: list[str]) -> Iterator[Any]:
    """Yield the overloads of ``operators``; append an error to ``wrong`` for each entry that is not an operator."""
    for operator in operators:
        if isinstance(operator, OpOverload | OpOverloadPacket):
            yield from _functional(operator, option, wrong)
        elif isinstance(operator, HigherOrderOperator) and option == "extra":
            yield operator
        elif isinstance(operator, str) and (named := operator_named(operator)) is not None:
            yield from _functional(named, option, wrong)
        else:
            wrong.append(f"{option}: no operator is named {operator!r}{_suggestion(str(operator))}")


def _functional(operator: OpOverload | OpOverloadPacket, option: str, wrong: list[str]) -> Iterator[OpOverload]:
    """Yield the overloads of ``operator`` that write to no argument, and the functional forms of the others.

    A packet's overloads with ``out=`` have none, and are left out.
    """
    forms = [
        (functional_form(overload) or view_form(overload) if overload._schema.is_mutable else overload, overload)
        for overload in overloads([operator])
    ]
    functional = dict.fromkeys(form for form, _ in forms if form is not None)
    writes = not any(form is overload for form, overload in forms)
    if writes and option == "extra":
        become = "".join(f"; give the rule of {form}, which it becomes" for form in functional)
        wrong.append(f"extra: {operator} writes to its arguments, and is not in programs that are decomposed{become}")
    elif not functional:
        wrong.append(f"{option}: {operator} writes to its arguments, and has no functional form that could be kept")
    else:
        yield from functional


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
