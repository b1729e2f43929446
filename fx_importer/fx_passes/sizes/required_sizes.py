"""Checks of sizes without which the model raises, mostly of sizes that values decide: ``x[x > 0].amax(0)``.

torch.export asserts some of these sizes, and assumes the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
from torch import SymInt, fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from fx_importer.frontend.assumptions.decided_sizes import emit_assumption, question_at
from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.fx_passes.node_rewriting import arguments_of
from fx_importer.symbolic.guards import add_guards

Requirement = tuple[int, str, int | fx.Node]
"""An axis, the relation of its size, ``"ge"`` or ``"ne"``, and the number, or size, that it is compared with."""
Rule = Callable[[int, dict[str, Any]], Iterator[Requirement]]
"""Yields what a call needs of the sizes of its first argument, by the rank of this and all arguments."""


def _run(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Insert an assumption before each call that needs a size which depends on values to be large enough.

    Sizes of inputs that are too small are guards, which callers check.
    """
    needed = [(size, requirement) for node in program.graph.nodes for size, requirement in _unchecked(node)]
    least = [
        (size, number) for size, (_, relation, number) in needed if relation == "ge" and not _is_unknown(size, number)
    ]
    add_guards(program, [sympy.Ge(_expression(size), _expression(number), evaluate=False) for size, number in least])

    def rewrite(graph: fx.Graph, owner: fx.GraphModule) -> None:
        emitted: set[str] = set()
        for node in list(graph.nodes):
            for size, requirement in _unchecked(node):
                if _is_unknown(size, requirement[2]):
                    _check(node, requirement, emitted)

    modules = [module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    unchecked = (entry for module in modules for node in module.graph.nodes for entry in _unchecked(node))
    unknown = any(_is_unknown(size, number) for size, (_, _, number) in unchecked)
    return with_rewritten_graphs(program, rewrite) if unknown else program


def _unchecked(node: fx.Node) -> Iterator[tuple[int | SymInt, Requirement]]:
    """Yield the requirements of ``node`` that sizes which are not known may violate."""
    rule = _RULES.get(node.target) if node.op == "call_function" else None
    if rule is None:
        return
    shape = value_of(node.args[0]).shape
    for axis, relation, number in rule(len(shape), arguments_of(node)):
        size = shape[axis % len(shape)] if shape else 1
        if isinstance(number, fx.Node):
            unchecked = _least(_expression(size) - _expression(number)) < 0
        else:
            least = _least(_expression(size)) if isinstance(size, SymInt) else math.inf
            unchecked = number >= least if relation == "ne" else number > least
        if unchecked:
            yield size, (axis % len(shape), relation, number)


def _is_unknown(*sizes: int | SymInt | fx.Node) -> bool:
    return any(free_unbacked_symbols(_expression(size)) for size in sizes)


def _expression(size: int | SymInt | fx.Node) -> sympy.Expr:
    value = value_of(size) if isinstance(size, fx.Node) else size
    return value.node.expr if isinstance(value, SymInt) else sympy.Integer(value)


def _least(expression: Any) -> Any:
    """Return the least value of a size, by its form alone: torch narrows the range of what it asserts."""
    return bound_sympy(expression, dict.fromkeys(expression.free_symbols, ValueRanges(0, int_oo))).lower


def _check(node: fx.Node, requirement: Requirement, emitted: set[str]) -> None:
    """Insert the assumption that ``requirement`` holds before ``node``, unless it is among ``emitted``."""
    axis, relation, number = requirement
    x: Any = node.args[0]
    bound = _expression(number)
    key = f"{value_of(x).shape[axis]} {relation} {bound}"
    if key in emitted:
        return
    emitted.add(key)
    size = emit(node, aten.scalar_tensor.default, emit(node, aten.sym_size.int, x, axis), dtype=torch.int64)
    expression = f"size {axis} of {x.target} {'>=' if relation == 'ge' else '!='} {bound}"
    otherwise = "an error" if relation == "ge" else ""
    question = question_at(node.meta.get("stack_trace"), expression, "True", otherwise)
    if isinstance(number, fx.Node):
        condition = emit(node, aten.ge.Tensor, size, emit(node, aten.scalar_tensor.default, number, dtype=torch.int64))
    else:
        condition = emit(node, getattr(aten, relation).Scalar, size, number)
    emit_assumption(node, condition, question)


def _select(rank: int, arguments: dict[str, Any]) -> Iterator[Requirement]:
    """Need the slice with a number, from the first or from the last one."""
    if type(index := arguments["index"]) is int:
        yield arguments["dim"], "ge", index + 1 if index >= 0 else -index


def _narrow(rank: int, arguments: dict[str, Any]) -> Iterator[Requirement]:
    start, length = arguments["start"], arguments["length"]
    if type(start) is int and type(length) is int:
        yield arguments["dim"], "ge", start + length if start >= 0 else -start


def _extremum(rank: int, arguments: dict[str, Any]) -> Iterator[Requirement]:
    """Need a number of elements, ``k`` or 1, along axes; along all of them if none is listed."""
    dims = arguments.get("dim")
    least = arguments.get("k", 1)
    for axis in range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims:
        yield axis, "ge", least


def _norm(rank: int, arguments: dict[str, Any]) -> Iterator[Requirement]:
    """Need an element for norms without a value for no elements: the largest, the smallest, and negative orders."""
    if arguments["ord"] == math.inf or arguments["ord"] < 0:
        yield from _extremum(rank, arguments)


def _squeeze(rank: int, arguments: dict[str, Any]) -> Iterator[Requirement]:
    """Need a size that is not 1, of which torch.export keeps the axis."""
    dims = arguments.get("dim", range(rank))
    yield from ((axis, "ne", 1) for axis in ([dims] if isinstance(dims, int) else dims))


def _unfold(rank: int, arguments: dict[str, Any]) -> Iterator[Requirement]:
    yield arguments["dimension"], "ge", arguments["size"]


def _pad(rank: int, arguments: dict[str, Any]) -> Iterator[Requirement]:
    widths, mode = arguments["pad"], arguments.get("mode", "constant")
    for axis, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True), start=1):
        if type(before) is int and type(after) is int:
            cropped = max(-before, 0) + max(-after, 0)
            read = {"reflect": max(before, after) + 1, "replicate": 1}.get(mode, 0)
            yield -axis, "ge", max(read, cropped)


def _pool(rank: int, arguments: dict[str, Any]) -> Iterator[Requirement]:
    """Need the elements of one window: with ``ceil_mode``, of the part of it that is not padding."""
    kernel = arguments["kernel_size"]
    stride, padding, dilation = arguments["stride"] or kernel, arguments["padding"], arguments.get("dilation", [1])
    for axis in range(-len(kernel), 0):
        k, s, p, d = (values[axis % len(values)] for values in (kernel, stride, padding, dilation))
        window = d * (k - 1) + 1 - 2 * p - (s - 1 if arguments["ceil_mode"] else 0)
        yield axis, "ge", max(window, 1)


_EXTREMA = (
    *(aten.amax.default, aten.amin.default, aten.argmax.default, aten.argmin.default, aten.aminmax.default),
    *(aten.max.default, aten.min.default, aten.max.dim, aten.min.dim, aten.median.dim, aten.nanmedian.dim),
    *(aten.mode.default, aten.kthvalue.default, aten.topk.default),
)
_POOLS = (
    *(aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default),
    *(aten.max_pool1d_with_indices.default, aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default),
    *(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default),
)
_RULES: dict[Any, Rule] = {
    **dict.fromkeys((aten.select.int, aten.select_scatter.default), _select),
    aten.narrow.default: _narrow,
    **dict.fromkeys(_EXTREMA, _extremum),
    aten.linalg_vector_norm.default: _norm,
    **dict.fromkeys((aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims), _squeeze),
    aten.unfold.default: _unfold,
    **dict.fromkeys((aten.pad.default, aten.constant_pad_nd.default), _pad),
    **dict.fromkeys(_POOLS, _pool),
}
"""What operators need of the sizes of their first argument."""

CHECK_REQUIRED_SIZES = FxPass("check-required-sizes", _run)
