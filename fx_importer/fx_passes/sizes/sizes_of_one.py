"""Computed sizes that guards of torch.export say are 1, as ``n // 2`` of a tensor that broadcasts."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import sympy
from torch import SymInt, Tensor, fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils._sympy.value_ranges import ValueRanges

from fx_importer.fx_graph.emission import emit, fake_mode_of_values, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxPass
from fx_importer.symbolic.guards import add_guards


def fold_sizes_of_one(program: ExportedProgram) -> ExportedProgram:
    """Return ``program``, after decomposition, with computed sizes that are 1 by its guards made static.

    MLIR takes two dynamic dimensions of an operation as equal, so none of them may be 1 where the other is larger. The
    operator that computes such a size keeps its dynamic type, which lowerings infer again, and its result is sliced;
    operators that pass the size on get the static type. Ranges of sizes are narrowed to where this holds, and guards
    added, since a range does not exclude 0 and 1, so that callers refuse other sizes; sizes that follow from several
    ones are kept. Programs with subgraphs are returned unchanged.
    """
    sizes = {size.node.expr: size for node in program.graph.nodes for size in _computed_sizes(node)}
    ones = {expression for expression, size in sizes.items() if statically_known_true(size == 1)}
    if not ones or any(True for _ in program.graph_module.children()):
        return program
    ranges = dict(program.range_constraints)
    folded = {expression for expression in ones if _narrow(ranges, expression)}
    if not folded:
        return program
    made = with_rewritten_graphs(program, lambda graph, _: _fold(graph, folded))
    made._range_constraints = ranges
    add_guards(program, [sympy.Eq(expression, 1) for expression in sizes if expression in folded])
    return made


def _narrow(ranges: dict[Any, Any], expression: sympy.Expr) -> bool:
    """Narrow the range of the only symbol of ``expression`` to where it is 1; return whether this could be done."""
    symbol, *others = expression.free_symbols
    if others or symbol not in ranges:
        return False
    first = int(ranges[symbol].lower)
    last = min(first + _TRIED, ranges[symbol].upper)
    ones = [size for size in range(first, int(last) + 1) if expression.xreplace({symbol: sympy.Integer(size)}) == 1]
    if not ones or ones[-1] - ones[0] + 1 != len(ones) or ones[-1] == first + _TRIED:
        return False
    ranges[symbol] = ValueRanges(ones[0], ones[-1])
    return True


_TRIED = 256
"""How many sizes are tried."""


def _fold(graph: fx.Graph, ones: Container[sympy.Expr]) -> None:
    passed = {
        node: {size.node.expr for operand in node.all_input_nodes for size in _computed_sizes(operand)}
        for node in graph.nodes
        if node.users and any(size.node.expr in ones for size in _computed_sizes(node))
    }
    for node, known in passed.items():
        shape = [size.node.expr if isinstance(size, SymInt) else sympy.Integer(size) for size in value_of(node).shape]
        axes = [axis for axis, size in enumerate(shape) if size in ones]
        of_operands = [axis for axis in axes if shape[axis] in known]
        node.meta["val"] = _narrowed(node, of_operands)
        users, sliced, after = list(node.users), node, node.next
        for axis in axes:
            if axis not in of_operands:
                sliced = emit(after, aten.slice.Tensor, sliced, axis, 0, 1)
                sliced.meta["val"] = _narrowed(sliced, [axis])
        for user in users:
            user.replace_input_with(node, sliced)


def _computed_sizes(node: fx.Node) -> Iterable[SymInt]:
    """Return the sizes of a tensor that are computed from other sizes, and from no values."""
    value = value_of(node)
    sizes = [size for size in value.shape if isinstance(size, SymInt)] if isinstance(value, Tensor) else []
    return [size for size in sizes if not size.node.expr.is_Atom and not free_unbacked_symbols(size)]


def _narrowed(node: fx.Node, axes: Iterable[int]) -> Tensor:
    """Return the value of ``node`` with the size 1 along ``axes``."""
    value = value_of(node)
    with fake_mode_of_values(node, value):
        for axis in axes:
            value = value.narrow(axis, 0, 1)
    return value


FOLD_SIZES_OF_ONE = FxPass("fold-sizes-of-one", lambda program, _: fold_sizes_of_one(program))
