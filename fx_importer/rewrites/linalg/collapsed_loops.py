"""Collapse nested loops over contiguous memory into one loop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-collapse-loops")
def collapse_loops(module: ir.Operation) -> None:
    """Collapse adjacent loops of each operation on buffers if they access contiguous memory in each buffer.

    Iterations keep their order, and so does every sum. Short loops around vectorized ones would be unrolled, which is
    slow to compile. Loops over a whole buffer are the same for all shapes, and threads share them evenly.
    """
    plans: dict[tuple[Any, ...], _Plan | None] = {}
    for op in operations(module, ("linalg.generic",)):
        maps, kinds = (op.attributes[name] for name in ("indexing_maps", "iterator_types"))
        if len(ir.ArrayAttr(kinds)) < 2 or operations(op, ("linalg.index",)):
            continue
        key = (maps, kinds, *(value.type for value in op.operands))
        if key not in plans:
            plans[key] = _planned(op, ir.ArrayAttr(maps), ir.ArrayAttr(kinds))
        if plan := plans[key]:
            plan.apply(op)


@dataclass(frozen=True)
class _Plan:
    """How to collapse the loops of operations with equal maps and types."""

    attributes: Mapping[str, ir.Attribute]
    buffers: Sequence[tuple[ir.Attribute, ir.Type] | None]
    """For each operand, the axes to merge and its new type; None if it does not change."""

    def apply(self, op: ir.Operation) -> None:
        emit = Emitter.before(op)
        for number, buffer in enumerate(self.buffers):
            if buffer is not None:
                operands, (axes, kind) = [op.operands[number]], buffer
                op.operands[number] = emit.op("memref.collapse_shape", [kind], operands, {"reassociation": axes}).result
        for name, attribute in self.attributes.items():
            op.attributes[name] = attribute


def _planned(op: ir.Operation, maps: ir.ArrayAttr, iterators: ir.ArrayAttr) -> _Plan | None:
    """Return how to collapse the loops of ``op``; None if there is nothing to collapse."""
    kinds = list(iterators)
    indices = [ir.AffineMapAttr(map_).value for map_ in maps]
    operands = [_Operand.of(value, index) for value, index in zip(op.operands, indices, strict=True)]
    buffers = [operand for operand in operands if operand is not None]
    if len(buffers) != len(operands):
        return None
    single = {loop for buffer in buffers for axis, loop in enumerate(buffer.loops) if buffer.sizes[axis] == 1}
    groups: list[list[int]] = []
    for loop, kind in enumerate(kinds):
        wider = [*groups[-1], loop] if groups else [loop]
        if groups and kinds[groups[-1][0]] == kind and all(buffer.has_in_a_row(wider, single) for buffer in buffers):
            groups[-1] = wider
        else:
            groups.append([loop])
    if all(sum(loop not in single for loop in group) < 2 for group in groups):
        return None
    collapsed = [buffer.collapsed(groups, op.context) for buffer in buffers]
    attributes: dict[str, ir.Attribute] = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(loop_map) for _, loop_map in collapsed], op.context),
        "iterator_types": ir.ArrayAttr.get([kinds[group[0]] for group in groups], op.context),
    }
    return _Plan(attributes, [buffer for buffer, _ in collapsed])


@dataclass(frozen=True)
class _Operand:
    """A buffer whose axes are each indexed by a loop or by 0."""

    kind: ir.MemRefType
    loops: Sequence[int | None]
    """The loop that runs along each axis; None for the index 0."""
    sizes: Sequence[int | None]
    """None for a dynamic size."""
    strides: Sequence[int | None] | None
    """None for a buffer without gaps."""
    offset: int | None

    @classmethod
    def of(cls, value: ir.Value, indices: ir.AffineMap) -> _Operand | None:
        """Return the operand; None if it is not a buffer or has other indices."""
        if not isinstance(value.type, ir.MemRefType) or not all(map(_is_loop_or_zero, indices.results)):
            return None
        kind = ir.MemRefType(value.type)
        loops = [result.position if isinstance(result, ir.AffineDimExpr) else None for result in indices.results]
        if len(set(loops) - {None}) != sum(loop is not None for loop in loops):
            return None
        sizes = [None if kind.is_dynamic_dim(axis) else kind.shape[axis] for axis in range(kind.rank)]
        if kind.layout == _identity(kind.rank, kind.context):
            return cls(kind, loops, sizes, None, 0)
        strides, offset = kind.get_strides_and_offset()
        known = [None if kind.is_dynamic_stride_or_offset(stride) else stride for stride in (*strides, offset)]
        return cls(kind, loops, sizes, known[:-1], known[-1])

    def axes(self, group: Sequence[int]) -> range:
        """Return the axes from the first to the last along which a loop of ``group`` runs."""
        axes = [axis for axis, loop in enumerate(self.loops) if loop in group]
        return range(min(axes), max(axes) + 1) if axes else range(0)

    def has_in_a_row(self, group: Sequence[int], single: set[int | None]) -> bool:
        """Return whether the loops of ``group`` access contiguous memory. Loops in ``single`` have one iteration."""
        axes = self.axes(group)
        own = [self.loops[axis] for axis in axes if self.loops[axis] is not None or self.sizes[axis] != 1]
        if own and own != [loop for loop in group if loop not in single or loop in own]:
            return False
        return self.strides is None or all(self._follows(axis) for axis in axes[:-1])

    def _follows(self, axis: int) -> bool:
        """Return whether the next element along ``axis`` starts right where the next inner axis ends."""
        assert self.strides is not None
        stride, inner, size = self.strides[axis], self.strides[axis + 1], self.sizes[axis + 1]
        return inner is not None and size is not None and stride == inner * size

    def collapsed(
        self, groups: Sequence[Sequence[int]], context: ir.Context
    ) -> tuple[tuple[ir.Attribute, ir.Type] | None, ir.AffineMap]:
        """Return the merged axes with the new type (None if unchanged), and the indexing map over the groups."""
        ranges = {axes.start: (axes, number) for number, group in enumerate(groups) if (axes := self.axes(group))}
        parts: list[range] = []
        indices: list[ir.AffineExpr] = []
        while (start := parts[-1].stop if parts else 0) < len(self.loops):
            axes, number = ranges.get(start, (range(start, start + 1), None))
            parts.append(axes)
            zero = ir.AffineExpr.get_constant(0, context)
            indices.append(zero if number is None else ir.AffineDimExpr.get(number, context))
        new = ir.AffineMap.get(len(groups), 0, indices, context)
        if len(parts) == len(self.loops):
            return None, new
        i64 = ir.IntegerType.get_signless(64, context)
        axes = [ir.ArrayAttr.get([ir.IntegerAttr.get(i64, axis) for axis in part], context) for part in parts]
        with context, ir.Location.unknown():
            return (ir.ArrayAttr.get(axes), self._type(parts)), new

    def _type(self, parts: Sequence[range]) -> ir.MemRefType:
        kind = self.kind
        shape: list[int] = []
        for part in parts:
            known = [size for axis in part if (size := self.sizes[axis]) is not None]
            shape.append(math.prod(known) if len(known) == len(part) else ir.ShapedType.get_dynamic_size())
        layout: ir.Attribute = _identity(len(parts), kind.context)
        if self.strides is not None:
            dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
            last = [next((axis for axis in reversed(part) if self.sizes[axis] != 1), part[0]) for part in parts]
            numbers = [self.offset, *(self.strides[axis] for axis in last)]
            offset, *strides = [dynamic if number is None else number for number in numbers]
            layout = ir.StridedLayoutAttr.get(offset, strides, kind.context)
        return ir.MemRefType.get(shape, kind.element_type, layout, kind.memory_space)


def _is_loop_or_zero(index: ir.AffineExpr) -> bool:
    if isinstance(index, ir.AffineConstantExpr):
        return index.value == 0
    return isinstance(index, ir.AffineDimExpr)


def _identity(rank: int, context: ir.Context) -> ir.AffineMapAttr:
    return ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank, context))
