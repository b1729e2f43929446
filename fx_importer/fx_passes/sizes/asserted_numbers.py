"""Checks of numbers that depend on values, which operators need: ``x.reshape(n.item(), -1)`` where ``n`` divides.

torch.export asserts them. Without a check, sizes that do not match give tensors that are partly uninitialized.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

from torch import SymBool, SymInt, fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from fx_importer.errors import ExportError
from fx_importer.frontend.assumptions.decided_sizes import assert_in_range, emit_assumption, question_at
from fx_importer.frontend.assumptions.number_tensors import NumberTensors
from fx_importer.frontend.assumptions.result_sizes import COUNTED, source_of_size
from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.fx_passes.sizes.item_numbers import ITEMS
from fx_importer.options import Capture


def _run(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Make assumptions of torch.export's assertions about items, and that two sizes are equal.

    The range of indices of slices, which torch.export does not assert, is checked too.
    """
    if not any(_is_checked(node) or _is_at_item(node) for node in program.graph.nodes):
        return program

    def rewrite(graph: fx.Graph, owner: fx.GraphModule) -> None:
        if owner is program.graph_module:
            for node in [node for node in graph.nodes if _is_at_item(node)]:
                assert_in_range(node, _INDEX[node.target])
            for node in [node for node in graph.nodes if _is_checked(node)]:
                _check(node)

    return with_rewritten_graphs(program, rewrite)


def _is_at_item(node: fx.Node) -> bool:
    """Return whether ``node`` takes the slice at an index that is computed from items."""
    if node.target not in _INDEX:
        return False
    index: Any = node.args[_INDEX[node.target]]
    return isinstance(index, fx.Node) and any(part.target in ITEMS for part in _parts(index))


def _is_checked(node: fx.Node) -> bool:
    """Return whether ``node`` asserts more than an operator guarantees of the sizes of its own result."""
    if node.target is not aten._assert_scalar.default or not isinstance(condition := node.args[0], fx.Node):
        return False
    parts = [*_parts(condition)]
    unknown = [part for part in parts if isinstance(value_of(part), SymInt) and free_unbacked_symbols(value_of(part))]
    if any(part.target in ITEMS for part in parts):
        return True
    return condition.target is operator.eq and (bool(unknown) or _counted_size(condition) is not None)


def _counted_size(condition: fx.Node) -> fx.Node | None:
    """Return the call whose number of elements ``condition`` compares with the size that torch replaced it by."""
    if not statically_known_true(value_of(condition)):
        return None
    sources = [source_of_size(size) for size in condition.args if isinstance(size, fx.Node)]
    return next((source for source in sources if source is not None and source.target in COUNTED), None)


def _parts(number: fx.Node) -> Iterator[fx.Node]:
    """Yield ``number`` and the numbers that it is computed from."""
    yield number
    for operand in number.all_input_nodes:
        if isinstance(value_of(operand), SymInt | SymBool | int | bool):
            yield from _parts(operand)


def _check(node: fx.Node) -> None:
    """Replace an assertion by an assumption, unless its numbers are not computable from tensors."""
    condition: Any = node.args[0]
    sources = {source for part in _parts(condition) for source in (part, *part.all_input_nodes)}
    traces = [source.meta["stack_trace"] for source in sorted(sources) if source.meta.get("stack_trace")]
    may_broadcast = condition.target is operator.eq and all(isinstance(part, fx.Node) for part in condition.args)
    otherwise = "an error, or broadcasts" if may_broadcast else "an error"
    question = question_at(traces[-1] if traces else None, _text(condition), "True", otherwise)
    source = _counted_size(condition)
    place = node
    if source is not None and all(
        size < source for size in condition.all_input_nodes if source_of_size(size) is not source
    ):
        place = source  # before the size is used
    try:
        emit_assumption(place, NumberTensors(place).checked(condition, question), question)
    except ExportError:  # a size that no rule counts
        return
    node.graph.erase_node(node)


def _text(number: Any) -> str:
    """Return ``number`` as Python writes it."""
    if not isinstance(number, fx.Node):
        return str(number)
    if number.target in ITEMS:
        return f"{number.args[0]}.item()"
    if number.target is operator.neg:
        return f"-{_text(number.args[0])}"
    if number.target is aten.sym_size.int:
        source: Any = number.args[0]
        return f"size {number.args[1]} of {source.name if source.op == 'placeholder' else source.target}"
    if number.target in _SYMBOLS and len(number.args) == 2:
        text = f"{_text(number.args[0])} {_SYMBOLS[number.target]} {_text(number.args[1])}"
        return text if number.target in _RELATIONS else f"({text})"
    return f"{getattr(number.target, '__name__', number.target)}({', '.join(map(_text, number.args))})"


_INDEX: Mapping[Any, int] = {aten.select.int: 2, aten.select_scatter.default: 3}
"""The position of the index among the arguments, which follows the axis."""
_RELATIONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_SYMBOLS: Mapping[Any, str] = {
    **dict(zip(_RELATIONS, ("==", "!=", "<", "<=", ">", ">="), strict=True)),
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.and_: "and",
    operator.or_: "or",
}

CHECK_ASSERTED_NUMBERS = FxPass(
    "check-asserted-numbers",
    _run,
    # Other types check by a result, which callers of `fx_importer.fx` do not expect.
    lambda context: (
        (context.target.data_dependent_sizes or context.options.export.capture is not Capture.EXPORT)
        and not context.options.importing.runtime_asserts
    ),
)
