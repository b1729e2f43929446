"""Checks of the number of values of writes: ``x[mask] = y`` needs as many as the mask has true elements.

The same holds for lists of indices whose number depends on values.

torch.export asserts nothing of them, and a write of fewer or more values would leave some out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import SymInt, fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from fx_importer.frontend.assumptions.decided_sizes import emit_assumption, question_at
from fx_importer.frontend.assumptions.number_tensors import NumberTensors
from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.fx_passes.node_rewriting import arguments_of
from fx_importer.options import Capture


def _run(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Insert an assumption before each such write."""
    rules = _RULES | _IN_LINALG if context.target.data_dependent_sizes else _RULES
    modules = [module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]
    if not any(node.target in rules for module in modules for node in module.graph.nodes):
        return program

    def rewrite(graph: fx.Graph, owner: fx.GraphModule) -> None:
        for node in list(graph.nodes):
            if (rule := rules.get(node.target)) is not None:
                rule(node)

    return with_rewritten_graphs(program, rewrite)


def _index_put(node: fx.Node) -> None:
    """Need a value for each true element of the only mask, or one for all; with other indices, as many of these."""
    x, values, indices = value_of(node.args[0]), value_of(node.args[2]), node.args[1]
    listed: list[tuple[int, fx.Node]] = [(axis, index) for axis, index in enumerate(indices) if index is not None]  # type: ignore
    masks = [(axis, index) for axis, index in listed if value_of(index).dtype is torch.bool]
    if not masks and listed:
        _index_list(node, listed)
    if len(masks) != 1:
        return
    ((axis, mask),) = masks
    if len(listed) > 1:
        others = [value_of(index).shape for _, index in listed if index is not mask]
        sizes = {shape[-1] for shape in others if len(shape) and type(shape[-1]) is int}
        for size in sizes - {1}:
            _assume(node, mask, "eq", size, size, "an error", or_one=True)
        return
    place = values.dim() - 1 - (x.dim() - axis - value_of(mask).dim())
    if place < 0 or (type(size := values.shape[place]) is int and size == 1):
        return
    if isinstance(size, SymInt) and any(
        _selects(source, mask) and size.node.expr in _symbols(source) for source in node.graph.nodes
    ):
        return
    number = emit(node, aten.sym_size.int, node.args[2], place) if isinstance(size, SymInt) else size
    may_broadcast = isinstance(size, SymInt)
    _assume(node, mask, "eq", number, size, "an error, or broadcasts" if may_broadcast else "an error")


def _index_list(node: fx.Node, listed: list[tuple[int, fx.Node]]) -> None:
    """Need a value for each of the indices, whose number depends on values, or one for all."""
    axes = [axis for axis, _ in listed]
    index = next((index for _, index in listed if value_of(index).dim()), None)
    apart = axes != [*range(axes[0], axes[-1] + 1)]
    if index is None or any(value_of(other).dim() > 1 for _, other in listed):
        return
    number = value_of(index).shape[0]
    x, values = value_of(node.args[0]), value_of(node.args[2])
    place = values.dim() - (1 + x.dim() - len(listed)) + (0 if apart else axes[0])
    if place < 0 or not free_unbacked_symbols(number) or (type(size := values.shape[place]) is int and size == 1):
        return
    if statically_known_true(number == values.shape[place]):
        return
    source = _source_of(node.graph, number)
    before = node if isinstance(size, SymInt) else source.next  # torch assumes that the two numbers are equal
    numbers = NumberTensors(before)
    otherwise, name = "an error", str(size)
    if isinstance(size, SymInt):
        size = emit(node, aten.sym_size.int, node.args[2], place)
        otherwise, name = "an error, or broadcasts", "number of values"
    counted = source
    if isinstance(x := value_of(source), torch.Tensor):
        axis = [size.node.expr if isinstance(size, SymInt) else size for size in x.shape].index(number.node.expr)
        counted = emit(before, aten.sym_size.int, source, axis)
    question = question_at(node.meta.get("stack_trace"), f"number of indices == {name}", "True", otherwise)
    emit_assumption(before, emit(before, aten.eq.Tensor, numbers.tensor(counted), numbers.tensor(size)), question)


def _source_of(graph: fx.Graph, number: SymInt) -> fx.Node:
    """Return the first node that is ``number``, or has it as a size."""
    for node in graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, SymInt) and size.node.expr == number.node.expr:
                return node
    raise AssertionError(number)


def _repeat_interleave(node: fx.Node) -> None:
    """Need repeats that are not negative, and whose sum is the size of the result, where the call has it."""
    arguments = arguments_of(node)
    repeats = arguments["repeats"]
    if not isinstance(repeats, fx.Node):
        return
    trace = node.meta.get("stack_trace")
    least = emit(node, aten.all.default, emit(node, aten.ge.Scalar, repeats, 0))
    emit_assumption(node, least, question_at(trace, "repeats >= 0", "True", "an error"))
    if isinstance(size := arguments.get("output_size"), int):
        total = emit(node, aten.sum.default, repeats)
        if value_of(repeats).dim() == 0 or value_of(repeats).shape[0] == 1:
            return  # repeats broadcast
        fits = emit(node, aten.eq.Scalar, total, size)
        emit_assumption(node, fits, question_at(trace, f"sum of repeats == {size}", "True", "an error"))


def _one_hot(node: fx.Node) -> None:
    """Need classes that are not negative and less than their number."""
    classes, number = node.args
    first, last = emit(node, aten.ge.Scalar, classes, 0), emit(node, aten.lt.Scalar, classes, number)
    condition = emit(node, aten.all.default, emit(node, aten.logical_and.default, first, last))
    text = f"0 <= class < {number if isinstance(number, int) else 'num_classes'}"
    emit_assumption(node, condition, question_at(node.meta.get("stack_trace"), text, "True", "an error"))


def _selects(source: fx.Node, mask: fx.Node) -> bool:
    """Return whether ``source`` reads at ``mask``, or one that is computed in the same way."""
    if source.target is not aten.index.Tensor:
        return False
    indices: Any = source.args[1]
    same = [index for index in indices if index is not None]
    return len(same) == 1 and (same[0] is mask or _key(same[0]) == _key(mask))


def _key(node: fx.Node) -> Any:
    return (node.target, node.args, node.kwargs) if node.op == "call_function" else node


def _symbols(node: fx.Node) -> set[sympy.Expr]:
    return {size.node.expr for size in value_of(node).shape if isinstance(size, SymInt)}


def _masked_scatter(node: fx.Node) -> None:
    """Need at least as many values as the mask, which broadcasts, has true elements."""
    x, mask, source = node.args
    size = value_of(source).numel()
    if statically_known_true(value_of(x).numel() <= size):
        return
    number = size if type(size) is int else emit(node, aten.sym_numel.default, source)
    wide = emit(node, aten.logical_and.default, mask, emit(node, aten.ones_like.default, x, dtype=torch.bool))
    _assume(node, wide, "le", number, size, "an error")


def _assume(
    node: fx.Node, mask: fx.Node, relation: str, number: Any, size: Any, otherwise: str, or_one: bool = False
) -> None:
    """Assume that the number of true elements of ``mask`` is ``number``, or not larger, or one."""
    count = emit(node, aten.sum.default, mask)
    if isinstance(number, fx.Node):
        number = emit(node, aten.scalar_tensor.default, number, dtype=torch.int64)
        condition = emit(node, getattr(aten, relation).Tensor, count, number)
    else:
        condition = emit(node, getattr(aten, relation).Scalar, count, number)
    expression = f"number of true elements of the mask {'==' if relation == 'eq' else '<='} {size}"
    if or_one:
        condition = emit(node, aten.logical_or.default, condition, emit(node, aten.eq.Scalar, count, 1))
        expression = f"number of true elements of the mask in (1, {size})"
    emit_assumption(node, condition, question_at(node.meta.get("stack_trace"), expression, "True", otherwise))


_RULES: dict[Any, Callable[[fx.Node], None]] = {
    **dict.fromkeys((aten.index_put.default, aten.index_put_.default), _index_put),
    **dict.fromkeys((aten.masked_scatter.default, aten.masked_scatter_.default), _masked_scatter),
    **dict.fromkeys((aten.repeat_interleave.Tensor, aten.repeat_interleave.self_Tensor), _repeat_interleave),
}
_IN_LINALG: dict[Any, Callable[[fx.Node], None]] = {aten.one_hot.default: _one_hot}
"""Other types check no indices."""

CHECK_MASKED_WRITES = FxPass(
    "check-masked-writes",
    _run,
    # Other types check by a result, which callers of `fx_importer.fx` do not expect.
    lambda context: context.target.data_dependent_sizes or context.options.export.capture is not Capture.EXPORT,
)
