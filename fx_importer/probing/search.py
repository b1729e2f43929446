"""Which operators of a program an output type cannot take: each is lowered alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from fx_importer.diagnostics.causes import NO_MATCH_ATTRIBUTE, Cause, Place
from fx_importer.diagnostics.progress import counted
from fx_importer.mlir.bindings import ir
from fx_importer.output_types import OutputType
from fx_importer.pipelines.runner import NOT_LOWERED
from fx_importer.probing.operator_modules import call_of, overload, probes_of
from fx_importer.probing.suggestions import suggestions


@dataclass(frozen=True)
class Failure:
    """How a module failed to lower."""

    stage: str
    reason: str
    """What MLIR said, or what ended the process."""


_SAID = 3
"""How many diagnostics are repeated."""

Lower = Callable[[str, OutputType], Failure | None]
"""Lowers the text of a module in the torch dialect; returns None where that goes well."""


def causes_in(module: ir.Operation, output_type: OutputType, lower: Lower, kept: Collection[str] = ()) -> list[Cause]:
    """Return what ``output_type`` refuses of ``module``, which is in the torch dialect as it was imported.

    Each operator is lowered alone, once for each way in which it is called. ``kept`` are those that would have been
    decomposed, had nobody asked to keep them.
    """
    failed: dict[str, bool] = {}
    causes: dict[str, tuple[Cause, dict[ir.Operation, None]]] = {}
    for probe in counted(probes_of(module), "operators"):
        failed[probe.text] = any(failed[each.text] for each in probe.inside)
        if failed[probe.text]:
            continue  # for what it holds
        refused = lower(probe.text, output_type)
        failed[probe.text] = refused is not None
        if refused is None:
            continue
        numbers = probe.fixed and lower(probe.fixed, output_type) is None
        for call in probe.numbers if numbers else probe.calls:
            text = call_of(call)  # one result of several is as good as another
            if text not in causes:
                tried = tuple(suggestions(probe, overload(call), output_type, lower, kept))
                reason = _fact(text) + refused.reason + _declined(call)
                causes[text] = Cause(overload(call), text, (), refused.stage, reason, tried), {}
            causes[text][1][call] = None
    return [replace(cause, places=tuple(Place.of(call.location) for call in calls)) for cause, calls in causes.values()]


def reason_of(messages: Sequence[str]) -> str:
    """Return what several diagnostics say, each once and without the operation that MLIR prints after it.

    Where the stages left operators, those are what counts: MLIR stumbles over any that is near.
    """
    short = dict.fromkeys(re.split(r': (?:"|%|\()', message.split("\n")[0])[0].strip() for message in messages)
    left = [each for each in short if each.startswith(NOT_LOWERED)]
    said = left or list(short)
    more = [f"and {len(said) - _SAID} more"] if len(said) > _SAID else []
    return "; ".join([*said[:_SAID], *more]) or "it failed without a word"


def _declined(call: ir.Operation) -> str:
    """Return what the user's rules said to a call, with a semicolon before it; or nothing."""
    return (
        f"; {ir.StringAttr(call.attributes[NO_MATCH_ATTRIBUTE]).value}" if NO_MATCH_ATTRIBUTE in call.attributes else ""
    )


def _fact(call: str) -> str:
    """Return what can be said of a refused call without MLIR, with a semicolon behind it; or nothing."""
    given, _, returned = call.partition(" -> ")
    dynamic = re.compile(r"\?|\b(int|list<int>)[,\])]")
    return "values decide how large the result is; " if "?" in returned and not dynamic.search(given) else ""
