"""Checks of the sizes of inputs against the dynamic dimensions of the export: ranges, divisibility, equal sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fx_importer.errors import UsageError
from fx_importer.manifest import Function

_LINEAR = re.compile(r"(?:(?P<factor>\d+)\*)?(?P<symbol>[A-Za-z_]\w*)(?: (?P<sign>[+-]) (?P<offset>\d+))?")
"""A dimension ``4*s0 + 1``, as `torch.export.Dim` can derive it."""

_SPECIALIZED = 2
"""torch.export assumes that sizes are at least 2; as in torch's own checks, a smaller size may be passed anyway."""


def check_sizes(function: Function, leaves: Sequence[Any]) -> None:
    """Raise `UsageError` with every size in ``leaves`` for which the program was not exported.

    ``leaves`` are the flat inputs. Sizes that are other than linear expressions of one symbol are not checked.
    """
    if not function.symbols:
        return
    mismatches: list[str] = []
    met: dict[str, tuple[int, str]] = {}
    for record, value in zip(function.inputs.leaves, leaves, strict=True):
        shape = record.type.shape if record.type is not None else None
        if shape is None or not isinstance(value, torch.Tensor) or value.dim() != len(shape):
            continue  # the backend says what it takes
        for axis, (declared, size) in enumerate(zip(shape, value.shape, strict=True)):
            if isinstance(declared, str):
                where = f"the input '{record.path}' has size {size} along axis {axis}"
                reason = _mismatch(declared, size, function.symbols, met, f"'{record.path}' along axis {axis}")
                mismatches += [f"{where}, but {reason}"] if reason else []
    if mismatches:
        raise UsageError("; ".join(mismatches))


def _mismatch(
    declared: str,
    size: int,
    symbols: Mapping[str, tuple[int, int | None]],
    met: dict[str, tuple[int, str]],
    where: str,
) -> str | None:
    """Return why ``size`` is not ``declared``; None if it is. ``met`` has the symbols so far, and where they were."""
    found = _LINEAR.fullmatch(declared)
    if found is None:
        return None
    factor = int(found["factor"] or 1)
    offset = int(found["offset"] or 0) * (-1 if found["sign"] == "-" else 1)
    if (size - offset) % factor:
        multiple = f"a multiple of {factor}" + (f" {found['sign']} {found['offset']}" if offset else "")
        return f"the program was exported for {multiple}"
    number = (size - offset) // factor
    least, greatest = symbols.get(found["symbol"], (0, None))
    if (number < least and least > _SPECIALIZED) or (greatest is not None and number > greatest):
        fewest = factor * least + offset
        if greatest is None:
            return f"the program was exported for sizes of at least {fewest}"
        return f"the program was exported for sizes from {fewest} to {factor * greatest + offset}"
    known, elsewhere = met.setdefault(found["symbol"], (number, where))
    if known != number:
        return f"the program was exported for {factor * known + offset} there, by the size of {elsewhere}"
    return None
