"""Sizes that depend on values, where a program works for one number only: ``x[x > 0] + torch.arange(5)``.

torch.export then takes the number for the size, and asserts that they are equal. The program after it is wrong for
other numbers, so the assertion becomes an assumption, which each call checks.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import SymBool, SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.node import map_arg

from fx_importer.diagnostics.assumption_messages import message_of
from fx_importer.diagnostics.mlir_diagnostics import read_frames, user_frame
from fx_importer.diagnostics.source_lines import source_line
from fx_importer.frontend.assumptions.number_tensors import NumberTensors
from fx_importer.frontend.assumptions.result_sizes import source_of_size
from fx_importer.frontend.assumptions.value_questions import Question
from fx_importer.fx_graph.aliasing import aliases_of_mutated, writes_of
from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten


def check_decided_sizes(graph: fx.Graph) -> None:
    """Make an assumption of each assertion in ``graph`` that a number which depends on values is a constant."""
    lists: dict[fx.Node, None] = {}
    for node in graph.find_nodes(op="call_function", target=aten._assert_scalar.default):
        if (decided := _decided(node.args[0])) is None:
            continue
        number, constant = decided
        source = source_of_size(number)
        if source is not None and _is_fixed_narrow(source, constant):
            _read_at_positions(source, constant)
            graph.erase_node(node)
            continue
        question = _question(number, source, constant)
        place = node if source is None else source  # before the size is used
        emit_assumption(place, NumberTensors(place).checked(node.args[0], question), question)
        if number.target is aten.item.default:
            _use_constant(number, constant)
        if source is not None and source.target is aten.bincount.default:
            _count_in_bins(source, node)
        elif source is not None and source.target in LISTS:
            lists[source] = None
        elif source is not None and _is_slice_of_size(source, number):
            _read_at_positions(source, constant)
        graph.erase_node(node)
    for source in lists:
        list_assumed_number(source)


def decides_sizes(graph: fx.Graph) -> bool:
    """Return whether `check_decided_sizes` changes ``graph``."""
    asserts = graph.find_nodes(op="call_function", target=aten._assert_scalar.default)
    return any(_decided(node.args[0]) is not None for node in asserts)


def _decided(condition: Any) -> tuple[fx.Node, int] | None:
    """Return the number and the constant that ``condition``, of an assertion, says are equal; None for others."""
    if not isinstance(condition, fx.Node) or condition.target is not operator.eq:
        return None
    number, constant = condition.args
    if not isinstance(number, fx.Node) or type(constant) is not int:
        return None
    value = value_of(number)
    known = value.node.maybe_as_int() if isinstance(value, SymInt) else value
    return (number, constant) if known == constant else None


def _use_constant(number: fx.Node, constant: int) -> None:
    """Pass ``constant`` in place of ``number`` to operators, whose sizes torch.export computed with it."""
    for user in list(number.users):
        if isinstance(user.target, OpOverload) and user.target is not aten._assert_scalar.default:
            user.args, user.kwargs = map_arg(
                (user.args, user.kwargs), lambda argument: constant if argument is number else argument
            )


def _question(number: fx.Node, source: fx.Node | None, constant: int) -> Question:
    """Return what the model decides, as a question of its line."""
    name = str(number.target) if source is None else f"size {number.args[1]} of {source.target}"
    return question_at((source or number).meta.get("stack_trace"), name, str(constant))


def question_at(stack_trace: str | None, expression: str, answer: str, otherwise: str = "") -> Question:
    """Return the question for the line of the model that ``stack_trace``, of a node, ends in."""
    file, line = user_frame(tuple(reversed(read_frames(stack_trace)))) or ("", 0)
    code = f", in {text}" if (text := source_line(file, line)) else ""
    return Question(file, line, f"{expression}{code}", answer, otherwise)


def _is_fixed_narrow(source: fx.Node, length: int) -> bool:
    """Return whether ``source`` narrows to ``length`` elements, of any start, as no view but of one write."""
    is_fixed = source.target is aten.narrow.default and bool(source.args[3] == length)
    return is_fixed and _is_gatherable(source)


def _is_slice_of_size(source: fx.Node, size: fx.Node) -> bool:
    """Return whether ``size`` is the number of elements of a slice of step 1, as no view but of one write."""
    arguments: list[Any] = [*source.args]
    is_slice = source.target is aten.slice.Tensor and len(arguments) < 5
    return is_slice and bool(arguments[1] == size.args[1]) and _is_gatherable(source)


def _is_gatherable(source: fx.Node) -> bool:
    """Return whether only assertions read where the view begins, and at most one operator writes to it."""
    offsets = [user for user in source.users if user.target is aten.sym_storage_offset.default]
    if not all(map(_is_asserted_only, offsets)):
        return False  # a gather has another offset
    return source not in aliases_of_mutated(source.graph) or _only_write(source) is not None


def _only_write(view: fx.Node) -> fx.Node | None:
    """Return the operator that writes to ``view``, if nothing else reads or writes the view or its result."""
    users = [user for user in view.users if isinstance(value_of(user), Tensor)]
    if len(users) != 1 or users[0].users or [written for written, _ in writes_of(users[0])] != [view]:
        return None
    return users[0]


def _is_asserted_only(number: fx.Node) -> bool:
    """Return whether all that is computed from ``number`` are assertions."""
    return all(
        user.target is aten._assert_scalar.default
        or (isinstance(value_of(user), SymInt | SymBool) and bool(user.users) and _is_asserted_only(user))
        for user in number.users
    )


def _read_at_positions(call: fx.Node, length: int) -> None:
    """Replace ``narrow`` or ``slice`` at a number that depends on values by a gather of ``length`` elements.

    A write to the view is one to the gathered elements, which are copied back.
    """
    x, axis, start, *_ = call.args
    write = _only_write(call) if call in aliases_of_mutated(call.graph) else None
    narrowed = _gathered(write or call, x, axis, start or 0, length)
    if write is not None:
        emit(write.next, aten.index_copy_.default, x, axis, narrowed.args[2], narrowed)
    for user in list(call.users):
        is_length = user.target is aten.sym_size.int and user.args[1] == axis
        if is_length or user.target is aten.sym_storage_offset.default:  # only assertions read the offset
            user.replace_all_uses_with(length if is_length else 0)  # type: ignore[arg-type]
            call.graph.erase_node(user)
    call.replace_all_uses_with(narrowed)
    call.graph.erase_node(call)


def gather_at_numbers(graph: fx.Graph) -> None:
    """Replace ``select`` and ``narrow`` at numbers that depend on values by gathers, whose gradients torch traces.

    Views that are written stay.
    """
    written = aliases_of_mutated(graph)
    for call in graph.find_nodes(op="call_function", target=aten.select.int):
        x, axis, index = call.args
        if isinstance(index, fx.Node) and free_unbacked_symbols(value_of(index)) and call not in written:
            assert_in_range(call, 2)  # torch.export does not
            row = emit(call, aten.squeeze.dim, _gathered(call, x, axis, index, 1), axis)
            call.replace_all_uses_with(row)
            graph.erase_node(call)
    for call in graph.find_nodes(op="call_function", target=aten.narrow.default):
        start, length = call.args[2:]
        is_unknown = isinstance(start, fx.Node) and free_unbacked_symbols(value_of(start))
        if is_unknown and type(length) is int and _is_fixed_narrow(call, length):
            _read_at_positions(call, length)


def assert_in_range(call: fx.Node, position: int) -> None:
    """Assert that the index of a slice, the argument after the axis, is at least ``-n``, and less than ``n``."""
    x, axis, index = call.args[0], call.args[position - 1], call.args[position]
    size: Any = value_of(x).shape[axis]
    least = -size
    if isinstance(size, SymInt):
        size = emit(call, aten.sym_size.int, x, axis)
        least = emit(call, operator.neg, size)
    for relation, bound in ((operator.ge, least), (operator.lt, size)):
        emit(call, aten._assert_scalar.default, emit(call, relation, index, bound), "an index is out of range")


def _gathered(call: fx.Node, x: Any, axis: Any, start: Any, length: Any) -> fx.Node:
    """Return ``length`` elements of ``x`` along ``axis``, from ``start`` on, which counts from the end if negative."""
    first = NumberTensors(call).tensor(start)
    size: Any = value_of(x).shape[axis]
    if isinstance(size, SymInt):
        size = emit(call, aten.scalar_tensor.default, emit(call, aten.sym_size.int, x, axis), dtype=torch.int64)
    else:
        size = emit(call, aten.full.default, [], size, dtype=torch.int64)
    from_end = emit(call, aten.add.Tensor, first, size)
    first = emit(call, aten.where.self, emit(call, aten.lt.Scalar, first, 0), from_end, first)
    positions = emit(call, aten.add.Tensor, emit(call, aten.arange.default, length, dtype=torch.int64), first)
    return emit(call, aten.index_select.default, x, axis, positions)


def _count_in_bins(call: fx.Node, after_check: fx.Node) -> None:
    """Replace ``bincount``, whose result has a constant number of bins, by sums of slices at ``after_check``."""
    x, weights, *_ = (*call.args, call.kwargs.get("weights"))
    bins, dtype = int(value_of(call).shape[0]), value_of(call).dtype
    index = emit(after_check, aten._to_copy.default, x, dtype=torch.int64)
    if weights is None:
        weights = emit(after_check, aten.ones_like.default, index)
    if value_of(weights).dtype is not dtype:
        weights = emit(after_check, aten._to_copy.default, weights, dtype=dtype)
    zeros = emit(after_check, aten.zeros.default, [bins], dtype=dtype)
    counted = emit(after_check, aten.scatter_add.default, zeros, 0, index, weights)
    for size in [user for user in call.users if user.target is aten.sym_size.int]:
        size.replace_all_uses_with(bins)  # type: ignore[arg-type]
        call.graph.erase_node(size)
    call.replace_all_uses_with(counted)
    call.graph.erase_node(call)


def emit_assumption(before: fx.Node, condition: fx.Node, question: Question) -> None:
    """Insert the assumption that ``condition``, a boolean tensor of rank 0, is true."""
    with before.graph.inserting_before(before):
        node = before.graph.call_function(aten._assert_async.msg, (condition, message_of(question.text)))
    node.meta |= {key: before.meta[key] for key in ("stack_trace", "nn_module_stack") if key in before.meta}
    node.meta["val"] = None


def list_assumed_number(node: fx.Node) -> None:
    """Give a call of `LISTS` the number of elements that the capture assumes, if it does."""
    (operand,) = node.args
    parts = [] if node.target is aten.nonzero.default else list(node.users)
    size = value_of(parts[0] if parts else node).shape[0]
    number = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else size
    if number is None or not value_of(operand).dim():
        return
    sizes = [user for tensor in (node, *parts) for user in tensor.users if _is_number_of_rows(user)]
    listed = emit(node, aten.nonzero_static.default, operand, size=number, fill_value=0)
    new: dict[fx.Node, Any] = dict.fromkeys(sizes, number)
    new |= {part: emit(node, aten.select.int, listed, 1, part.args[1]) for part in parts}
    for old, replacement in {**new, node: listed}.items():
        old.replace_all_uses_with(replacement)
        node.graph.erase_node(old)


def _is_number_of_rows(node: fx.Node) -> bool:
    return node.target is aten.sym_size.int and node.args[1:] == (0,)


LISTS = (aten.nonzero.default, aten.where.default, aten.nonzero_numpy.default)
"""Operators that list the elements of a tensor that are not zero."""
