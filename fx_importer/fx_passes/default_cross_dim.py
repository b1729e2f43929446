"""``torch.cross`` without ``dim``, whose axis is the first one of size 3."""

from __future__ import annotations

from collections.abc import Collection

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedProgramError
from fx_importer.fx_graph.aliasing import graphs_of
from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxPass
from fx_importer.symbolic.guards import guards_of


def fix_axis_of_cross(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with ``dim`` in each ``cross`` without it.

    Where torch.export records the guard ``size != 3``, the axis is fixed, and callers check the guard.

    Raises:
        UnsupportedProgramError: naming the operators whose axis depends on a dynamic size: torch.export takes the
        example's axis.
    """
    crosses = [node for graph in graphs_of(program.graph_module) for node in graph.nodes if _is_without_dim(node)]
    if not crosses:
        return program
    guards = guards_of(program)
    if wrong := [node for node in crosses if not isinstance(_size_of_axis(node, guards), int)]:
        raise UnsupportedProgramError(
            "the axis of cross without dim is the first one of size 3, which depends on a dynamic size. Pass dim to "
            "torch.cross, or use torch.linalg.cross, whose axis is the last:",
            [unsupported_node(node, f"its result has the sizes {[*map(str, value_of(node).shape)]}") for node in wrong],
        )
    return with_rewritten_graphs(program, lambda graph, _: _write_axes(graph))


def _write_axes(graph: fx.Graph) -> None:
    for node in filter(_is_without_dim, graph.nodes):
        axis = next(axis for axis, size in enumerate(value_of(node).shape) if isinstance(size, int) and size == 3)
        node.args, node.kwargs = node.args[:2], {**node.kwargs, "dim": axis}


def _is_without_dim(node: fx.Node) -> bool:
    is_cross = node.target is torch.ops.aten.cross.default
    return is_cross and (node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")) is None


def _size_of_axis(node: fx.Node, guards: Collection[sympy.Basic]) -> int | torch.SymInt:
    return next(size for size in value_of(node).shape if _may_be_three(size, guards))


def _may_be_three(size: int | torch.SymInt, guards: Collection[sympy.Basic]) -> bool:
    """Return whether the range of ``size`` has 3, and no guard says that it is another."""
    if isinstance(size, int):
        return size == 3
    limits = size.node.shape_env.bound_sympy(size.node.expr)
    return bool(limits.lower <= 3 <= limits.upper) and sympy.Ne(size.node.expr, 3) not in guards


FIX_AXIS_OF_CROSS = FxPass("fix-axis-of-cross", lambda program, _: fix_axis_of_cross(program))
