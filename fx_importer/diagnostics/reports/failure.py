"""How something failed, as a value: what two failures are compared by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fx_importer.diagnostics.mlir_diagnostics import Diagnostic, PassError, diagnostics_of, reason_of
from fx_importer.errors import CrashedError, StageFailed

_RESOURCE = re.compile(r"dense_resource<[^>]*>")
"""MLIR gives a weight another name where its own is taken."""


@dataclass(frozen=True)
class Failure:
    """A failure without what differs from run to run. Equal ones are the same."""

    stage: str
    kind: str
    """``diagnostics``; the type of an exception; or how a process ended: a signal, a limit, ``exit``."""
    said: tuple[str, ...]
    """The diagnostics, each with its line; what the exception says; or the pass that ended the process by a signal."""

    @classmethod
    def of(cls, stage: str, error: Exception) -> Failure:
        """Return how ``stage`` failed; ``error`` is what it raised."""
        if isinstance(error, CrashedError):
            # When a limit ends a process, the pass is a matter of speed.
            said = (error.pass_name,) if error.pass_name and not error.limit else ()
            return cls(stage, error.signal or error.limit or "exit", said)
        if diagnostics := diagnostics_of(error):
            return cls(stage, "diagnostics", tuple(map(_said, diagnostics)))
        if isinstance(error, PassError):
            return cls(stage, "PassError", tuple(str(error).splitlines()[:1]))
        kind, _, text = reason_of(error).partition(": ")
        return cls(stage, kind, tuple(text.strip().splitlines()[:1]))

    @classmethod
    def caught(cls, error: StageFailed | CrashedError) -> Failure:
        """Return how a stage failed, from what the user gets."""
        if isinstance(error, CrashedError):
            return cls.of(error.stage or "", error)
        cause = error.__cause__
        return cls.of(error.stage, cause if isinstance(cause, Exception) else error)

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Failure:
        return cls(facts["stage"], facts["kind"], tuple(facts["said"]))

    def __str__(self) -> str:
        lines = [f"stage '{self.stage}': {self.kind}", *self.said]
        return "\n  ".join(line for each in lines for line in each.splitlines())


def _said(diagnostic: Diagnostic) -> str:
    where = f" at {diagnostic.where}" if diagnostic.where else ""
    return f"{diagnostic.severity}: {_RESOURCE.sub('dense_resource<...>', diagnostic.message)}{where}"
