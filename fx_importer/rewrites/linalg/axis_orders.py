"""Axis orders: track transposed tensors, and rewrite operations to use the tensors before transposition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import attributes_of, is_used
from fx_importer.mlir.emit.linalg import LinalgOps

Order = tuple[int, ...]
"""For each axis of a tensor, the corresponding axis of another tensor."""


class Layouts:
    """Tracks which tensors of a block are transposes of others.

    A subclass rewrites operations to use the tensors before transposition, and transposes their results. These
    transposes sink until nothing uses them or an operation needs the program's layout.
    """

    def __init__(self) -> None:
        self.sources: dict[ir.Value, tuple[ir.Value, Order]] = {}
        """Maps a transposed tensor to its source, and to the order of its axes there."""

    def visit(self, block: ir.Block, visitors: Mapping[str, Callable[[ir.Operation], None]]) -> None:
        """Visit the statically shaped operations of ``block`` in order, then erase the unused transposes."""
        for op in [op.operation for op in block]:
            if op.name in visitors and all(map(_is_static, (*op.operands, *op.results))):
                visitors[op.name](op)
        for value in reversed(self.sources):
            if not is_used(value):
                value.owner.erase()


def _is_static(value: ir.Value) -> bool:
    return not isinstance(value.type, ir.RankedTensorType) or ir.RankedTensorType(value.type).has_static_shape


def groups_of(op: ir.Operation) -> list[list[int]]:
    """Return the axis groups of a ``tensor.collapse_shape``."""
    groups = ir.ArrayAttr(op.attributes["reassociation"])
    return [[ir.IntegerAttr(axis).value for axis in ir.ArrayAttr(group)] for group in groups]


def inverse(order: Order) -> Order:
    """Return the order that undoes ``order``."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def read_by_axis(read: ir.AffineMap, order: Order) -> ir.AffineMap:
    """Return the map that reads a tensor where ``read`` reads its transpose with axes ``order``."""
    return ir.AffineMap.get(read.n_dims, 0, [read.results[axis] for axis in inverse(order)])


def transposed(emit: LinalgOps, value: ir.Value, order: Order) -> ir.Value:
    """Emit a copy of ``value`` whose axis ``i`` is its axis ``order[i]``. Axes not in ``order`` have size 1."""
    kind = ir.RankedTensorType(value.type)
    empty = emit.empty([kind.shape[axis] for axis in order], kind.element_type)
    read = [order.index(axis) if axis in order else None for axis in range(kind.rank)]
    maps = [emit.select_axes(len(order), read), emit.select_axes(len(order), range(len(order)))]
    return emit.generic([value], [empty], maps, lambda _, elements: elements[:1])[0]


def padded(emit: LinalgOps, op: ir.Operation, source: ir.Value, order: Order) -> ir.Value:
    """Emit the ``tensor.pad`` that pads ``source`` as ``op`` pads its transpose."""
    attributes = attributes_of(op)
    for name in ("static_low", "static_high"):
        numbers = list(ir.DenseI64ArrayAttr(attributes[name]))
        attributes[name] = emit.array([numbers[axis] for axis in inverse(order)])
    kind = ir.RankedTensorType(op.results[0].type)
    result = emit.tensor([kind.shape[axis] for axis in inverse(order)], kind.element_type)
    copy = emit.op("tensor.pad", [result], [source], attributes, regions=1)
    block = emit.add_block(copy.regions[0], [emit.type("index")] * len(order))
    inside = emit.inside(block)
    inside.op("tensor.yield", [], inside.inline_block(op.regions[0].blocks[0], list(block.arguments)))
    return copy.result


def consecutive_groups(sizes: Sequence[int], groups: Sequence[Sequence[int]]) -> list[tuple[int, list[int]]] | None:
    """Return the axis groups as runs of consecutive axes, each with its group number; None if they are not runs.

    Axes of size 1 may join any run.
    """
    number_of = {axis: number for number, group in enumerate(groups) for axis in group}
    wide = [any(sizes[axis] != 1 for axis in group) for group in groups]
    runs: list[tuple[int, list[int]]] = []
    waiting: list[int] = []
    for axis, size in enumerate(sizes):
        number = number_of[axis]
        begins = size != 1 or (not wide[number] and number not in [run for run, _ in runs])
        if runs and (not begins or runs[-1][0] == number):
            runs[-1][1].append(axis)
        elif begins:
            runs.append((number, [*waiting, axis]))
            waiting = []
        else:
            waiting.append(axis)
    numbers = [number for number, _ in runs]
    read = [[axis for axis in group if sizes[axis] != 1] for group in groups]
    ordered = all(axes == sorted(axes) for axes in read)
    return runs if ordered and sorted(numbers) == list(range(len(groups))) else None
