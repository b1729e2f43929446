"""Search for the unsupported operators of a program: each is lowered alone."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fx_importer.diagnostics.causes import NO_MATCH_ATTRIBUTE, Cause, IncompleteSearch, Place
from fx_importer.diagnostics.progress import counted
from fx_importer.fx_graph.operators import operator_named
from fx_importer.mlir.bindings import ir
from fx_importer.output_types import OutputType
from fx_importer.pipelines.runner import NOT_LOWERED
from fx_importer.probing.operator_modules import call_of, maker_of, overload, probes_of


@dataclass(frozen=True)
class LoweringFailure:
    """Failure of the lowering of a module."""

    stage: str
    reason: str
    """MLIR's diagnostics, or how the process crashed."""


_MAX_MESSAGES = 3
"""Number of diagnostics in a reason."""

_MAX_NEIGHBOURS = 64
"""Number of operations near an operator without a source line that are asked for theirs."""

Lower = Callable[[str, OutputType], LoweringFailure | None]
"""Lowers the text of a module in the torch dialect; returns None if that succeeds."""


def causes_in(
    module: ir.Operation,
    output_type: OutputType,
    lower: Lower,
    seconds: float = math.inf,
) -> list[Cause]:
    """Return the operators of ``module``, which is in the torch dialect, that ``output_type`` does not support.

    Each distinct call of an operator is lowered alone.

    Raises:
        IncompleteSearch: after ``seconds``, with the operators found so far.
    """
    start = time.monotonic()
    failed: dict[str, bool] = {}
    causes: dict[str, tuple[Cause, dict[ir.Operation, None]]] = {}
    probes = probes_of(module)
    for number, probe in enumerate(counted(probes, "operators")):
        if time.monotonic() > start + seconds:
            raise IncompleteSearch(_causes(causes), seconds, number, len(probes))
        failed[probe.text] = any(failed[each.text] for each in probe.inside)
        if failed[probe.text]:
            continue  # because of an operator in its regions
        failure = lower(probe.text, output_type)
        failed[probe.text] = failure is not None
        if failure is None:
            continue
        numbers = probe.fixed and lower(probe.fixed, output_type) is None
        for call in probe.numbers if numbers else probe.calls:
            text = call_of(call)  # one of several results suffices
            if text not in causes:
                op = overload(call)
                reason = _data_dependent_remark(op, text) + failure.reason + _no_match_reason(call)
                causes[text] = Cause(op, text, (), failure.stage, reason), {}
            causes[text][1][call] = None
    return _causes(causes)


def _causes(found: Mapping[str, tuple[Cause, Iterable[ir.Operation]]]) -> list[Cause]:
    return [replace(cause, places=tuple(map(_place, calls))) for cause, calls in found.values()]


def _place(call: ir.Operation) -> Place:
    """Return the place of ``call``, or of the nearest operation before or after it that has a source line."""
    own = Place.of(call.location)
    seen, nearest = {call}, [call]
    while nearest and len(seen) <= _MAX_NEIGHBOURS and own.file is None:
        op = nearest.pop(0)
        users = [use.owner for result in op.results for use in result.uses]
        makers = [maker for operand in op.operands if (maker := maker_of(operand))]
        for neighbour in (*users, *makers):
            place = Place.of(neighbour.location)
            if place.file is not None:
                return place
            if neighbour not in seen:
                seen.add(neighbour)
                nearest.append(neighbour)
    return own


def reason_of(messages: Sequence[str]) -> str:
    """Return the messages of several diagnostics, each once, without the operation that MLIR prints after it.

    Messages about operators that no stage lowered come alone: the others are follow-up errors.
    """
    short = dict.fromkeys(re.split(r': (?:"|%|\()', message.split("\n")[0])[0].strip() for message in messages)
    left = [each for each in short if each.startswith(NOT_LOWERED)]
    reasons = left or list(short)
    more = [f"and {len(reasons) - _MAX_MESSAGES} more"] if len(reasons) > _MAX_MESSAGES else []
    return "; ".join([*reasons[:_MAX_MESSAGES], *more]) or "it failed without a message"


def _no_match_reason(call: ir.Operation) -> str:
    """Return the reasons why the user's lowerings did not match, with a leading semicolon; or an empty string."""
    return (
        f"; {ir.StringAttr(call.attributes[NO_MATCH_ATTRIBUTE]).value}" if NO_MATCH_ATTRIBUTE in call.attributes else ""
    )


def _data_dependent_remark(op: str, call: str) -> str:
    """Return a remark if a result of the call has a data-dependent size, with a semicolon; or an empty string."""
    given, _, returned = call.partition(" -> ")
    dynamic = re.compile(r"\?|\b(int|list<int>)[,\])]")
    depends = torch.Tag.dynamic_output_shape in getattr(operator_named(op), "tags", ()) or not dynamic.search(given)
    return "the result has a data-dependent size; " if "?" in returned and depends else ""
