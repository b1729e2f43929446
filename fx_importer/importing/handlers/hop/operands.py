"""The arguments of a higher-order operator's call."""

from __future__ import annotations

from typing import Any

from torch import fx


def arguments_of(node: fx.Node) -> tuple[Any, ...]:
    """Return the arguments of ``node``, some of which export may have given by name, in the operator's order."""
    return (*node.args, *node.kwargs.values())
