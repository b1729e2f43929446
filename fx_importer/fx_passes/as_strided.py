"""``as_strided`` and ``as_strided_scatter`` as views, or as gathers and scatters on the flattened memory.

Both index the memory that their argument lies in, from its begin: ``x[1].as_strided(…)`` may read the first row of
``x``. Views are followed to the value that the memory was allocated for, whose layout its example value has. That is
eager's layout in an exported program only; decompositions may compute the same values in another one.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import Argument, map_aggregate

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedProgramError
from fx_importer.fx_graph.aliasing import aliases_of_mutated, graphs_of, may_share_memory_with, mutated_arguments
from fx_importer.fx_graph.emission import emit, fake_mode_of_values, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_graph.retracing import run_decompositions
from fx_importer.fx_passes.fx_pass import FxPass, functional_graph_pass
from fx_importer.fx_passes.node_rewriting import NodeRewrites, rewrite_nodes, same_size

Size = int | SymInt


def resolve_strides(program: ExportedProgram) -> ExportedProgram:
    """Return ``program``, before decomposition, without operators that index memory by strides.

    If they share memory with a value that the program overwrites, torch makes it functional first. New values of an
    overwritten input have another storage offset, so before that, positions are counted from the start of the memory.

    Raises:
        UnsupportedProgramError: if the layout of the memory is unknown.
    """
    if not any(node.target in STRIDES for graph in graphs_of(program.graph_module) for node in graph.nodes):
        return program
    graphs = list(graphs_of(program.graph_module))
    if any(node.target in STRIDES for graph in graphs for node in aliases_of_mutated(graph)):
        program = with_rewritten_graphs(program, lambda graph, _: rewrite_nodes(reversed(graph.nodes), _FLATTENED))
        program = run_decompositions(program, {})
        return with_rewritten_graphs(program, lambda graph, _: rewrite_nodes(reversed(graph.nodes), _OF_FLAT_MEMORY))
    return with_rewritten_graphs(program, lambda graph, _: rewrite_strides(graph))


def rewrite_strides(graph: fx.Graph) -> None:
    """Rewrite the operators of ``graph`` that index memory by strides.

    The last one first: each is rewritten while its argument still is a view of the memory.
    """
    rewrite_nodes(reversed(graph.nodes), STRIDES)


@dataclass(frozen=True)
class _Memory:
    """The memory that a value lies in."""

    flat: fx.Node
    """Its elements, [n]."""
    start: Size
    """The storage offset of the first of them."""


MemoryOf = Callable[[fx.Node, Argument], _Memory]


def _as_strided(node: fx.Node, memory_of: MemoryOf | None = None) -> fx.Node | None:
    """Rewrite ``as_strided`` as reshape and permute if it is a view of the whole memory, else as a gather."""
    source, sizes, strides, *rest = node.args
    if not node.users:
        return None
    offset = _offset_of(node, source, rest[0] if rest else node.kwargs.get("storage_offset"))
    memory = (memory_of or _memory_of)(node, source)
    return _read(node, memory, list(sizes), list(strides), offset)  # type: ignore[arg-type]


def _flatten(node: fx.Node) -> fx.Node | None:
    """Make ``as_strided`` count from the start of memory in row-major order, with a storage offset.

    Its argument becomes the value that the memory was allocated for, which torch writes to, or a flat view of it.
    """
    source, sizes, strides, *rest = node.args
    offset = _offset_of(node, source, rest[0] if rest else node.kwargs.get("storage_offset"))
    memory = _memory_of(node, source)
    _check_bounds(node, memory, value_of(node).shape, strides, offset)
    base = _allocation_of(source)  # type: ignore[arg-type]
    if not value_of(base).is_contiguous() or value_of(base).dtype != value_of(node).dtype:
        if _is_written(node):
            _refuse(node, f"the program writes to it, and the memory of '{base.name}' is in another order or dtype")
        base = memory.flat
    node.args = (base, sizes, strides, _minus(node, offset, memory.start))
    node.kwargs = {}
    return None


def _is_written(node: fx.Node) -> bool:
    """Return whether an operator writes to ``node`` or to a view of it."""
    return any(
        node in mutated_arguments(user) or (node in may_share_memory_with(user) and _is_written(user))
        for user in node.users
    )


def _as_strided_scatter(node: fx.Node, memory_of: MemoryOf | None = None) -> fx.Node | None:
    """Rewrite ``as_strided_scatter`` as ``index_put`` on the memory. The result is a view of it, as the argument is."""
    base, source, sizes, strides, *rest = node.args
    if not node.users:
        return None
    value: Tensor = value_of(base)
    if 0 in [stride for size, stride in zip(value.shape, value.stride(), strict=True) if not same_size(size, 1)]:
        _refuse(node, "elements of its argument share memory, as those of an expanded tensor do")
    offset = _offset_of(node, base, rest[0] if rest else node.kwargs.get("storage_offset"))
    memory = (memory_of or _memory_of)(node, base)
    _check_bounds(node, memory, value_of(source).shape, strides, offset)
    positions = _positions(node, list(sizes), list(strides), _minus(node, offset, memory.start))  # type: ignore[arg-type]
    positions, source = (emit(node, aten.reshape.default, tensor, [-1]) for tensor in (positions, source))
    written = emit(node, aten.index_put.default, memory.flat, [positions], source)
    shape, strides = [_size_argument(node, size) for size in value.shape], list(value.stride())
    if memory_of is not None:
        return emit(node, aten.reshape.default, written, shape)
    return _read(node, _Memory(written, memory.start), shape, strides, value.storage_offset())


def _offset_of(node: fx.Node, source: Argument, offset: Any) -> Any:
    """Return the storage offset that ``node`` takes, or by default its argument's."""
    return value_of(source).storage_offset() if offset is None else offset


def _memory_of(node: fx.Node, source: Argument) -> _Memory:
    """Return the memory of ``source``, in its dtype, emitted before ``node``.

    Raises:
        UnsupportedProgramError: if its layout is unknown.
    """
    assert isinstance(source, fx.Node)
    value: Tensor = value_of(source)
    base_node = _allocation_of(source)
    base: Tensor = value_of(base_node)
    order = _memory_order(base.shape, base.stride())
    if order is None:
        _refuse(node, f"the elements of '{base_node.name}' do not fill its memory, whose other values are unknown")
    if value.is_conj() or value.is_neg():
        _refuse(node, "its argument is a lazy conjugate or negative")
    flat = emit(node, aten.reshape.default, emit(node, aten.permute.default, base_node, order), [-1])
    start = base.storage_offset()
    if base.dtype != value.dtype:
        if base.is_complex():
            flat = emit(node, aten.reshape.default, emit(node, aten.view_as_real.default, flat), [-1])
        else:
            flat = emit(node, aten.view.dtype, flat, value.dtype)
        if value_of(flat).dtype != value.dtype:
            _refuse(node, f"its argument is {value.dtype}, in memory that was allocated for {base.dtype}")
        start = start * base.element_size() // value.element_size()
    return _Memory(flat, start)


def _counted_memory(node: fx.Node, source: Argument) -> _Memory:
    """Return the memory that ``node`` has from `_flatten`, or from a decomposition, which sets no storage offset."""
    if len(node.args) < len(node.target._schema.arguments):  # type: ignore[union-attr]
        return _memory_of(node, source)
    return _Memory(emit(node, aten.reshape.default, source, [-1]), 0)


def _allocation_of(node: fx.Node) -> fx.Node:
    """Return the value that the memory of ``node`` was allocated for: a new result, or an input."""
    while (viewed := _viewed(node)) is not None:
        node = viewed
    return node


def _viewed(node: fx.Node) -> fx.Node | None:
    """Return the argument whose memory ``node`` shares, or None: whether ``reshape`` copies depends on the strides."""
    call = node.args[0] if node.target is operator.getitem else node
    if not isinstance(call, fx.Node) or not isinstance(call.target, OpOverload):
        return None
    shared = may_share_memory_with(call)
    if len(shared) != 1 or not isinstance(source := value_of(shared[0]), Tensor):
        return None
    with torch.no_grad(), fake_mode_of_values(call, source):
        alias = source.detach()  # an in-place view would change the example value
        args, kwargs = map_aggregate(
            (call.args, dict(call.kwargs)), lambda item: alias if item is shared[0] else value_of(item)
        )
        result = call.target(*args, **kwargs)
        result = result if call is node else result[node.args[1]]
        return shared[0] if result.untyped_storage()._cdata == source.untyped_storage()._cdata else None


def _read(node: fx.Node, memory: _Memory, sizes: list[Any], strides: list[Any], offset: Any) -> fx.Node:
    """Emit the elements of ``memory`` in the type of ``node``."""
    result: Tensor = value_of(node)
    order = _memory_order(result.shape, result.stride())
    whole = same_size(value_of(memory.flat).numel(), result.numel())
    if order is not None and whole and same_size(value_of(offset), memory.start):
        flat = memory.flat
        elements = flat.args[0] if flat.target is aten.reshape.default else flat
        view = emit(node, aten.reshape.default, elements, [sizes[axis] for axis in order])
        return emit(node, aten.permute.default, view, [order.index(axis) for axis in range(len(order))])
    _check_bounds(node, memory, result.shape, strides, offset)
    positions = _positions(node, sizes, strides, _minus(node, offset, memory.start))
    return emit(node, aten.index.Tensor, memory.flat, [positions])


def _check_bounds(node: fx.Node, memory: _Memory, sizes: Sequence[Size], strides: Any, offset: Any) -> None:
    """Refuse elements that are known to lie in the memory of a tensor that an input is a part of."""
    first = value_of(offset) - memory.start
    steps = [(size - 1) * value_of(stride) for size, stride in zip(sizes, strides, strict=True)]
    if any(statically_known_true(size == 0) for size in sizes):
        return
    known = value_of(memory.flat).shape[0]
    if statically_known_true(first < 0) or statically_known_true(first + sum(steps) >= known):
        _refuse(node, "it reads memory outside of the tensor that it is given a view of, whose values are unknown")


def _minus(node: fx.Node, offset: Any, start: Size) -> Any:
    """Return the argument ``offset - start``."""
    if isinstance(offset, SymInt) or isinstance(start, SymInt):
        if same_size(value_of(offset), start):
            return 0
        _refuse(node, "its place in memory depends on a dynamic size: pass storage_offset as a number")
    if isinstance(offset, fx.Node):
        return emit(node, operator.sub, offset, start) if start else offset
    return offset - start


def _size_argument(node: fx.Node, size: Size) -> Any:
    if isinstance(size, SymInt):
        _refuse(node, "the sizes of its argument are dynamic")
    return size


def _refuse(node: fx.Node, reason: str) -> NoReturn:
    raise UnsupportedProgramError(
        "the program indexes memory by strides, which tensors of the output types do not have. Accepted are parts of "
        "memory that is filled by one value of the program, or by an input; clone() makes such a value:",
        [unsupported_node(node, reason)],
    )


def _memory_order(sizes: Sequence[Size], strides: Sequence[Size]) -> list[int] | None:
    """Return the axes from the slowest to the fastest varying if the layout is dense without overlap, else None."""
    axes = list(range(len(sizes)))
    orders = [axes]
    if not any(isinstance(stride, SymInt) for stride in strides):
        orders.append(sorted(axes, key=lambda axis: -strides[axis]))
    return next((order for order in orders if _fills_memory(order, sizes, strides)), None)


def _fills_memory(order: list[int], sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    expected: Size = 1
    for axis in reversed(order):
        if not same_size(sizes[axis], 1) and not same_size(strides[axis], expected):
            return False  # the stride of an axis of size 1 is irrelevant
        expected = expected * sizes[axis]
    return True


def _positions(node: fx.Node, sizes: list[Argument], strides: list[Argument], offset: object) -> fx.Node:
    """Emit the memory position of each element: sum over the axes of index times stride, plus the offset."""
    total = emit(node, aten.full.default, [], offset, dtype=torch.int64)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        indices = emit(node, aten.arange.start_step, 0, size, 1, dtype=torch.int64)
        column = emit(node, aten.reshape.default, indices, [-1] + [1] * (len(sizes) - axis - 1))
        total = emit(node, aten.add.Tensor, total, emit(node, aten.mul.Tensor, column, stride))
    return total


STRIDES: NodeRewrites = {
    aten.as_strided.default: _as_strided,
    aten.as_strided_copy.default: _as_strided,
    aten.as_strided_scatter.default: _as_strided_scatter,
}
_FLATTENED: NodeRewrites = {**STRIDES, aten.as_strided.default: _flatten}
"""Before torch makes a program functional: operators that are no views are rewritten."""
_OF_FLAT_MEMORY: NodeRewrites = {
    aten.as_strided.default: functools.partial(_as_strided, memory_of=_counted_memory),
    aten.as_strided_copy.default: functools.partial(_as_strided, memory_of=_counted_memory),
    aten.as_strided_scatter.default: functools.partial(_as_strided_scatter, memory_of=_counted_memory),
}


RESOLVE_STRIDES = FxPass("resolve-strides", lambda program, _: resolve_strides(program))
RESOLVE_STRIDES_OF_DECOMPOSITIONS = functional_graph_pass("resolve-strides-of-decompositions", rewrite_strides)
"""Strides are as traced until a pass rewrites the graph, so it is the first that rewrites a decomposed graph."""
