"""Failures as values, to compare them between runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fx_importer.diagnostics.mlir_diagnostics import Diagnostic, PassError, diagnostics_of, reason_of
from fx_importer.errors import CrashedError, StageFailed

_RESOURCE = re.compile(r"dense_resource<[^>]*>")
"""MLIR renames resources whose name is taken."""


@dataclass(frozen=True)
class Failure:
    """A failure without details that differ from run to run."""

    stage: str
    kind: str
    """``diagnostics``; the type of an exception; or how a process ended: a signal, a limit, or ``exit``."""
    messages: tuple[str, ...]
    """The diagnostics with source lines; the message of the exception; or the pass that crashed the process."""

    @classmethod
    def of(cls, stage: str, error: Exception) -> Failure:
        """Return the failure of ``stage``, which raised ``error``."""
        if isinstance(error, CrashedError):
            # Which pass exceeds a limit depends on speed.
            messages = (error.pass_name,) if error.pass_name and not error.limit else ()
            return cls(stage, error.signal or error.limit or "exit", messages)
        if diagnostics := diagnostics_of(error):
            return cls(stage, "diagnostics", tuple(map(_message, diagnostics)))
        if isinstance(error, PassError):
            return cls(stage, "PassError", tuple(str(error).splitlines()[:1]))
        kind, _, text = reason_of(error).partition(": ")
        return cls(stage, kind, tuple(text.strip().splitlines()[:1]))

    @classmethod
    def caught(cls, error: StageFailed | CrashedError) -> Failure:
        """Return the failure of a stage from the exception that the user gets."""
        if isinstance(error, CrashedError):
            return cls.of(error.stage or "", error)
        cause = error.__cause__
        return cls.of(error.stage, cause if isinstance(cause, Exception) else error)

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Failure:
        return cls(facts["stage"], facts["kind"], tuple(facts.get("messages", ())))

    def __str__(self) -> str:
        lines = [f"stage '{self.stage}': {self.kind}", *self.messages]
        return "\n  ".join(line for text in lines for line in text.splitlines())


def _message(diagnostic: Diagnostic) -> str:
    where = f" at {diagnostic.where}" if diagnostic.where else ""
    return f"{diagnostic.severity}: {_RESOURCE.sub('dense_resource<...>', diagnostic.message)}{where}"
