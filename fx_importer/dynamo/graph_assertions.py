"""Assertions of TorchDynamo's graphs, as checks that every call evaluates before its results are used."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import fx

from fx_importer.diagnostics.assumption_messages import message_of
from fx_importer.diagnostics.mlir_diagnostics import read_frames, user_frame
from fx_importer.frontend.assumptions.value_questions import assertion_at


def with_checks(module: fx.GraphModule) -> fx.GraphModule:
    """Return ``module`` with the ``assert`` statements on tensors as checks, whose errors name the statement.

    A program may drop its assertions, but not its checks.
    """
    if not any(_assertions(each.graph) for each in _graph_modules(module)):
        return module
    result = fx.GraphModule(module, copy.deepcopy(module.graph), type(module).__name__)
    for name, child in result.named_children():
        if isinstance(child, fx.GraphModule):
            setattr(result, name, with_checks(child))
    for node in _assertions(result.graph):
        node.update_arg(1, message_of(_text(node)))
    result.recompile()
    return result


def _graph_modules(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    return (each for each in module.modules() if isinstance(each, fx.GraphModule))


def _assertions(graph: fx.Graph) -> list[fx.Node]:
    """Return the calls of ``torch._assert_async(condition, message)``, which TorchDynamo makes of ``assert``."""
    return graph.find_nodes(op="call_function", target=torch._assert_async)  # pyright: ignore[reportPrivateImportUsage]


def _text(node: fx.Node) -> str:
    """Return the condition, the line, and the exception of the model."""
    asserted, *message = node.args
    frame = user_frame(tuple(reversed(read_frames(node.meta.get("stack_trace")))))
    condition, raised = (frame and assertion_at(*frame)) or (
        str(asserted),
        f"RuntimeError({', '.join(map(repr, message))})",
    )
    return (
        f"`{condition}` is True{f', at {frame[0]}:{frame[1]}' if frame else ''} (otherwise the model raises {raised})"
    )
