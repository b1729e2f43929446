"""Arguments of a call of a higher-order operator."""

from __future__ import annotations

from typing import Any

from torch import fx


def arguments_of(node: fx.Node) -> tuple[Any, ...]:
    """Return the arguments of ``node`` in the operator's order. Export may have passed some of them by name."""
    return (*node.args, *node.kwargs.values())
