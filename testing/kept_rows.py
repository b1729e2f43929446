"""The package's table of faults of kept operators, from the verdicts of `testing.kept_sweep`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from fx_importer.decompositions.engine.kept.fault_table import Severity

Row = Mapping[str, Any]

UNDETERMINED = ("argsort", "sort", "msort", "rrelu", "rrelu_with_noise", "empty_like", "new_empty", "dropout")
"""Operators whose results eager does not determine: the order of equal elements, random numbers, memory as it is."""
_SPECIAL = "NaN and infinities"
_USUAL = ("usual", "of the other sign", "negative indices")
_WRONG_SHARE, _WRONG_BY = 0.25, 1e-2
"""The share of elements, and the relative difference, from which results on usual values are wrong."""
_BAD = ("off", "wrong", "dies", "does not end", "stops in the backend")


def table(verdicts: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Return the table: by output type and operator, the conditions without a difference, and the faults."""
    groups: dict[str, dict[str, dict[str, list[Row]]]] = {}
    for row in verdicts:
        if row["kind"] in ("lowering", "running", "refused", "not kept", "ended") or _is_undetermined(row["operator"]):
            continue
        if "cannot be run" in row["why"]:  # by the reference backend, which says nothing of the lowering
            continue
        operators = groups.setdefault(row["output_type"], {})
        operators.setdefault(row["operator"], {}).setdefault(row["key"], []).append(row)
    return {
        output_type: {name: _entry(keys) for name, keys in sorted(operators.items())}
        for output_type, operators in sorted(groups.items())
    }


def _is_undetermined(name: str) -> bool:
    _, packet, overload = name.split(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload)
    return packet in UNDETERMINED or torch.Tag.nondeterministic_seeded in operator.tags


def _entry(keys: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    faults = [fault for key, rows in sorted(keys.items()) if (fault := _fault(key, rows))]
    wrong = {fault["when"] for fault in faults}
    return {"right": sorted(keys.keys() - wrong), "faults": faults}


def _fault(key: str, rows: Sequence[Row]) -> dict[str, str] | None:
    bad = [row for row in rows if row["kind"] in _BAD]
    if not bad:
        return None
    severity = min(map(_severity, bad), key=list(Severity).index)
    worst = max((row for row in bad if _severity(row) is severity), key=lambda row: row["by"])
    return {"when": key, "severity": severity.value, "what": _what(worst)}


def _severity(row: Row) -> Severity:
    if row["kind"] in ("dies", "wrong"):
        return Severity.WRONG
    if row["values"] == _SPECIAL:
        return Severity.SPECIAL
    counts = re.match(r"(\d+) of (\d+)", row["why"])
    share = int(counts[1]) / int(counts[2]) if counts else 0.0
    far = row["kind"] == "off" and row["values"] in _USUAL and share >= _WRONG_SHARE and row["by"] >= _WRONG_BY
    return Severity.WRONG if far else Severity.INEXACT


def _what(row: Row) -> str:
    values = {"usual": "", "": ""}.get(row["values"], f" (values {row['values']})".replace("values NaN", "NaN"))
    if row["kind"] == "dies":
        return f"the process ends by {row['why']}"
    if row["kind"] == "does not end":
        return "the lowering takes more than a minute"
    if row["kind"] == "stops in the backend":
        return f"the module stops{values}"
    by = f"{row['by']:.1g} " if 0 < row["by"] < float("inf") and row["by"] < 1e20 else ""
    return f"{by and 'off by ' + by}in {row['why']}{values}" if row["kind"] == "off" else row["why"]
