"""Verdicts and divergences as JSON values of a report."""

from __future__ import annotations

from collections.abc import Iterator

from fx_importer.diagnostics.explorer import Contents
from fx_importer.verification.divergence import Divergence
from fx_importer.verification.verdict import Check, Verdict


def contents_of_verdict(verdict: Verdict) -> list[Contents]:
    """Return a value for each output that was compared, and for each call that has none."""
    return [each for check in verdict.checks for each in _outputs(check)]


def _outputs(check: Check) -> Iterator[Contents]:
    common: Contents = {
        "backend": check.backend,
        "function": check.function,
        "inputs": check.inputs,
        "required": check.required,
    }
    if not check.outputs:
        yield {**common, "output": None, "status": check.status.value, "detail": check.reason}
    for output in check.outputs:
        compared = output.comparison
        status = "passed" if compared.passed else "mismatch"
        yield {
            **common,
            "output": output.name,
            "status": status,
            "detail": str(compared),
            "dtype": compared.dtype,
            "shape": list(compared.shape),
            "max_absolute": _number(compared.max_absolute),
            "max_relative": _number(compared.max_relative),
        }


def contents_of_divergence(found: Divergence) -> Contents:
    """Return the node, its place, and the text of ``found``."""
    path, _, line = (found.where or "").rpartition(":")
    place = {"file": path, "line": int(line), "module": found.module or None} if line.isdecimal() else None
    return {
        "node": found.node,
        "operator": found.operator,
        "backend": found.backend,
        "cause": found.cause.value,
        "detail": str(found),
        "places": [place] if place else [],
    }


def _number(value: float) -> float | None:
    """Return ``value``, or None for infinities and NaN, which JSON lacks."""
    return value if abs(value) < float("inf") else None
