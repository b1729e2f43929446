"""Writes through views that share elements or leave some of their tensor out, as ``unfold`` and ``as_strided`` do.

torch makes a program functional by inverting views. Its inverse of ``unfold`` sums windows and leaves zeros between
them, and its inverse of overlapping ``as_strided`` keeps old values of elements that have several places.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx.node import map_aggregate

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedProgramError
from fx_importer.fx_graph.aliasing import (
    aliases_of_mutated,
    graphs_of,
    may_share_memory_with,
    mutated_arguments,
    view_bases,
    writes_of,
)
from fx_importer.fx_graph.emission import emit
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_graph.regions import with_inlined_regions

_WINDOWS = (aten.unfold.default, aten.as_strided.default)
_ELEMENTS = 1 << 22
"""Largest view whose places in memory are listed to find out whether elements share one."""
_SAME_WHEN_REPEATED = frozenset(
    (
        *(aten.zero_.default, aten.fill_.Scalar, aten.fill_.Tensor, aten.relu_.default, aten.abs_.default),
        *(aten.floor_.default, aten.ceil_.default, aten.trunc_.default, aten.round_.default, aten.sign_.default),
        *(aten.clamp_.default, aten.clamp_min_.default, aten.clamp_max_.default, aten.nan_to_num_.default),
        *(aten.hardtanh_.default, aten.relu6_.default),
    )
)
"""Writes of one number, or of a function that changes nothing when it is applied again: an element that has several
places in the view gets the same value from all of them, in any order."""


def with_direct_writes(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with each write through windows as a write to the tensor that they are windows of.

    The positions of the written elements in that tensor come from the same views of the numbers 0, 1, 2, ….

    Raises:
        UnsupportedProgramError: for a write to elements that share memory whose result depends on the order, and for
            views of which the positions are unknown.
    """
    if not any(node.target in _WINDOWS for graph in graphs_of(program.graph_module) for node in graph.nodes):
        return program
    program = with_inlined_regions(program)
    graphs = graphs_of(program.graph_module)
    if not any(node.target in _WINDOWS for graph in graphs for node in aliases_of_mutated(graph)):
        return program
    return with_rewritten_graphs(program, lambda graph, _: _write_directly(graph))


def _write_directly(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        if torch.Tag.inplace_view in getattr(node.target, "tags", ()):
            continue
        replaced: dict[fx.Node, list[fx.Node]] = {}
        for written, writer in writes_of(node):
            views = list(_views(written))
            _check_order(writer, written, views)
            wrong = next((at for at, view in reversed(list(enumerate(views))) if _is_inverted_wrongly(view, at)), None)
            if wrong is not None:
                replaced[written] = views[wrong::-1]
        if replaced:
            _replace(node, replaced)


def _views(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the views that ``node`` is made by, the last one first."""
    while isinstance(node.target, OpOverload) or node.target is operator.getitem:
        bases = may_share_memory_with(node)
        if len(bases) != 1:
            return
        yield node
        node = bases[0]


def _is_inverted_wrongly(view: fx.Node, after: int) -> bool:
    """Return whether torch's inverse of ``view`` is wrong for a write through it and ``after`` further views."""
    if view.target is aten.unfold.default:
        return True
    return view.target is aten.as_strided.default and after > 0 and may_overlap(view.meta["val"])


def may_overlap(value: Tensor) -> bool:
    """Return whether elements of ``value`` may share memory; dynamic sizes count as those of the example inputs."""
    if value.layout is not torch.strided:
        return False
    sizes, strides = _numbers(value.shape), _numbers(value.stride())
    if sizes is None or strides is None:
        return True
    if 0 in sizes:
        return False
    axes = sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size > 1)
    reach = 0
    for stride, size in axes:
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    if value.dim() and torch.Size(sizes).numel() > _ELEMENTS:
        return True
    places = torch.zeros((), dtype=torch.int64)
    for stride, size in axes:
        places = places.unsqueeze(-1) + torch.arange(size) * stride
    return places.unique().numel() != places.numel()


def _numbers(sizes: Sequence[int | SymInt]) -> list[int] | None:
    hints = [size.node.hint if isinstance(size, SymInt) else size for size in sizes]
    return None if any(hint is None for hint in hints) else [int(hint) for hint in hints]


def _check_order(node: fx.Node, written: fx.Node, views: Sequence[fx.Node]) -> None:
    """Refuse a write whose result depends on the order in which elements that share memory are written."""
    windows = [view for view in views if view.target in _WINDOWS]
    if not windows or not may_overlap(written.meta["val"]) or _is_same_when_repeated(node):
        return
    name = windows[0].target.overloadpacket.__name__  # type: ignore[union-attr]
    _refuse(node, f"the elements of '{written.name}', windows of {name} that overlap, share memory")


def _is_same_when_repeated(node: fx.Node) -> bool:
    others = [operand.meta.get("val") for operand in node.all_input_nodes[1:]]
    alike = all(isinstance(other, Tensor) and all(size == 1 for size in other.shape) for other in others)
    return alike and (node.target in _SAME_WHEN_REPEATED or node.target is aten.copy_.default)


def _replace(node: fx.Node, writes: Mapping[fx.Node, Sequence[fx.Node]]) -> None:
    """Write to copies of the nodes of ``writes``, and their elements to the tensors that their views are views of."""
    written = next(iter(writes))
    if node.users and not _returns_written(node):
        _refuse(node, f"'{written.name}' is a view of windows, and {node.target} has other results than what it writes")
    bases = [set(view_bases(argument)) for argument in dict.fromkeys(mutated_arguments(node))]
    if len(set[fx.Node]().union(*bases)) < sum(map(len, bases)):
        _refuse(node, f"'{written.name}' is a view of windows, and {node.target} writes to its memory twice")
    copies = {view: emit(node, aten.clone.default, view) for view in writes}
    args, kwargs = map_aggregate(
        (node.args, dict(node.kwargs)), lambda item: copies.get(item, item) if isinstance(item, fx.Node) else item
    )
    with node.graph.inserting_before(node):
        call = node.graph.call_function(node.target, args, kwargs)  # type: ignore[arg-type]
    call.meta.update(node.meta)
    for view, views in writes.items():
        _write_back(node, view, copies[view], views)
    node.replace_all_uses_with(written)
    node.graph.erase_node(node)


def _returns_written(node: fx.Node) -> bool:
    """Return whether the only result of ``node`` is the tensor that it writes to."""
    results = node.target._schema.returns if isinstance(node.target, OpOverload) else ()
    return len(results) == 1 and results[0].alias_info is not None


def _write_back(node: fx.Node, written: fx.Node, made: fx.Node, views: Sequence[fx.Node]) -> None:
    """Write the elements of ``made``, a copy of ``written``, to the tensor that the first of ``views`` is a view of."""
    base: Any = views[0].args[0]
    if any(view.target is aten.as_strided.default for view in views):
        part = written.meta["val"]
        numbers = (*part.shape, *part.stride(), part.storage_offset())
        if any(isinstance(number, SymInt) for number in numbers) or part.dtype != base.meta["val"].dtype:
            _refuse(node, f"'{written.name}' is a view of windows, of dynamic sizes or another dtype")
        offset = part.storage_offset()
        alone = emit(node, aten.as_strided.default, base, list(part.shape), list(part.stride()), offset)
        emit(node, aten.copy_.default, alone, made)
    else:
        sizes = [
            emit(node, aten.sym_size.int, base, axis) if isinstance(size, SymInt) else size
            for axis, size in enumerate(base.meta["val"].shape)
        ]
        places = emit(node, aten.reshape.default, _places(node, base, sizes, views), [-1])
        flat, values = (emit(node, aten.reshape.default, tensor, [-1]) for tensor in (base, made))
        new = emit(node, aten.index_put.default, flat, [places], values)
        emit(node, aten.copy_.default, base, emit(node, aten.reshape.default, new, sizes))


def _places(node: fx.Node, base: fx.Node, sizes: Sequence[Any], views: Sequence[fx.Node]) -> fx.Node:
    """Emit the position, in the flattened ``base``, of each element of the last of ``views``."""
    count: Any = functools.reduce(lambda a, b: _product(node, a, b), sizes, 1)
    device = base.meta["val"].device
    numbers = emit(node, aten.arange.start_step, 0, count, 1, dtype=torch.int64, device=device)
    places: dict[Any, fx.Node] = {base: emit(node, aten.reshape.default, numbers, sizes)}
    for view in views:
        target: Any = view.target
        if _reinterprets(view):
            _refuse(node, f"'{view.name}', a view of windows, has other elements than these")
        args, kwargs = map_aggregate(
            (view.args, dict(view.kwargs)), lambda item: places.get(item, item) if isinstance(item, fx.Node) else item
        )
        places[view] = emit(node, target, *args, **kwargs)
    return places[views[-1]]


def _product(node: fx.Node, a: Any, b: Any) -> Any:
    if isinstance(a, fx.Node) or isinstance(b, fx.Node):
        return a if b == 1 else b if a == 1 else emit(node, operator.mul, a, b)
    return a * b


def _reinterprets(view: fx.Node) -> bool:
    value, source = view.meta["val"], view.all_input_nodes[0].meta["val"]
    if not isinstance(value, Tensor) or not isinstance(source, Tensor):
        return False
    lazy = (value.is_conj(), value.is_neg()) != (source.is_conj(), source.is_neg())
    return value.dtype != source.dtype or lazy


def _refuse(node: fx.Node, reason: str) -> NoReturn:
    raise UnsupportedProgramError(
        "the program writes to windows of a tensor, which a function of values cannot always. Accepted are windows "
        "that do not overlap, and writes of one number; write to the tensor itself, or to a clone() of the windows:",
        [unsupported_node(node, reason)],
    )
