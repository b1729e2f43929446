"""Names of the submodules that FX nodes were traced in."""

from __future__ import annotations

from torch import fx

_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # export's module name for nodes that it added itself


def module_name(node: fx.Node) -> str | None:
    """Return the qualified name of the innermost module that ``node`` was traced in; None for the root module."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return None
    name = next(reversed(stack.values()))[0]
    if name == _NO_MODULE:
        return None
    return name.removeprefix("L['self'].").removeprefix("L['self']") or None
