"""Names of the submodules that FX nodes were traced in."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # export's module name for nodes that it added itself


def module_name(node: fx.Node) -> str | None:
    """Return the qualified name of the innermost module that ``node`` was traced in; None for the root module."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return None
    name = next(reversed(stack.values()))[0]
    return None if name == _NO_MODULE else _qualified(name) or None


def module_classes(node: fx.Node) -> Iterator[tuple[str, str]]:
    """Yield the qualified name and the class name of each module that ``node`` was traced in, the model's as ``""``."""
    for name, kind in (node.meta.get("nn_module_stack") or {}).values():
        if name != _NO_MODULE:
            yield _qualified(name), (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]


def _qualified(name: str) -> str:
    return name.removeprefix("L['self'].").removeprefix("L['self']")
