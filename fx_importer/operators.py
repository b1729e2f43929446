"""Operators by their names."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket


def operator_named(name: str) -> OpOverload | OpOverloadPacket | None:
    """Return the operator that torch prints as ``name``, with or without its overload or ``torch.`` before it.

    What is not registered in this process has none.
    """
    parts = name.removeprefix("torch.").removeprefix("ops.").split(".")
    if len(parts) not in (2, 3) or not all(parts):
        return None
    found: Any = torch.ops
    for part in parts:
        found = getattr(found, part, None)
    return found if isinstance(found, OpOverload | OpOverloadPacket) else None
