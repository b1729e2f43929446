"""Sizes and strides of buffers that the C code does not read: compilers warn of unused variables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_WRITTEN = re.compile(r"\s*(?:(?:const )?ptrdiff_t )?(b\d+_[ds]\d+|next\d+)(?: = [^;]*)?;")
"""A declaration or an assignment of a variable of `FunctionWriter.declare` or `FunctionWriter.assign`."""
_NAMES = re.compile(r"\b(?:b\d+_[ds]\d+|next\d+)\b")


def without_unread_sizes(lines: Sequence[str]) -> list[str]:
    """Return ``lines`` without the variables of sizes and strides that none of them reads."""
    kept = list(lines)
    while True:
        names = [match[1] if (match := _WRITTEN.fullmatch(line)) else None for line in kept]
        uses = Counter(_NAMES.findall("\n".join(kept)))
        unread = {name for name, count in Counter(names).items() if name is not None and uses[name] == count}
        if not unread:
            return kept
        kept = [line for line, name in zip(kept, names, strict=True) if name not in unread]
