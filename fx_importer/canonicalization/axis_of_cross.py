"""``torch.cross`` without ``dim``, whose axis is the first one of size 3."""

from __future__ import annotations

from collections.abc import Collection

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.canonicalization.node_rewriting import value_of
from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedProgramError
from fx_importer.fx_graph.aliasing import graphs_of
from fx_importer.fx_graph.size_guards import guards_of


def refuse_axis_by_dynamic_size(program: ExportedProgram) -> None:
    """Refuse ``cross`` without ``dim`` where a dynamic size decides on the axis: torch takes that of the example.

    Where torch.export records the guard ``size != 3``, the axis is fixed, and callers check the guard.

    Raises:
        UnsupportedProgramError: naming the operators.
    """
    nodes = [node for graph in graphs_of(program.graph_module) for node in graph.nodes]
    if not (crosses := [node for node in nodes if node.target is torch.ops.aten.cross.default]):
        return
    guards = guards_of(program)
    if found := [node for node in crosses if _is_dynamic(node, guards)]:
        raise UnsupportedProgramError(
            "the axis of cross without dim is the first one of size 3, which depends on a dynamic size. Pass dim to "
            "torch.cross, or use torch.linalg.cross, whose axis is the last:",
            [unsupported_node(node, f"its result has the sizes {[*map(str, value_of(node).shape)]}") for node in found],
        )


def _is_dynamic(node: fx.Node, guards: Collection[sympy.Basic]) -> bool:
    if (node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")) is not None:
        return False
    first = next((size for size in value_of(node).shape if _may_be_three(size, guards)), 3)
    return not isinstance(first, int)


def _may_be_three(size: int | torch.SymInt, guards: Collection[sympy.Basic]) -> bool:
    """Return whether the range of ``size`` has 3, and no guard says that it is another."""
    if isinstance(size, int):
        return size == 3
    limits = size.node.shape_env.bound_sympy(size.node.expr)
    return bool(limits.lower <= 3 <= limits.upper) and sympy.Ne(size.node.expr, 3) not in guards
