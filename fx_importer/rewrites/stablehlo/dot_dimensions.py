"""Fold reshapes that merge axes into ``dot_general``, and merge the axes again for linalg."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import attributes_of, producer
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.walk import rewrite

if TYPE_CHECKING:
    from typing_extensions import Self

Groups = list[list[int]]
"""The axes of a source that each axis of its reshape merges."""


@dataclass
class DotNumbers:
    """Dimension numbers of a ``dot_general``: for each side, the axes of its operand."""

    batches: Sequence[list[int]]
    contracted: Sequence[list[int]]

    @classmethod
    def of(cls, op: ir.Operation) -> Self:
        """Return the numbers of ``op``."""
        numbers = stablehlo_d.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        return cls(
            (list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)),
            (list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)),
        )

    def free(self, side: int, rank: int) -> list[int]:
        """Return the other axes of an operand of ``rank`` axes."""
        return [axis for axis in range(rank) if axis not in (*self.batches[side], *self.contracted[side])]

    def attribute(self, context: ir.Context) -> ir.Attribute:
        """Return the attribute ``dot_dimension_numbers``."""
        return stablehlo_d.DotDimensionNumbers.get(
            lhs_batching_dimensions=self.batches[0],
            rhs_batching_dimensions=self.batches[1],
            lhs_contracting_dimensions=self.contracted[0],
            rhs_contracting_dimensions=self.contracted[1],
            context=context,
        )


def fold_transposes(op: ir.Operation) -> None:
    """Fold a ``transpose`` of an operand into the dimension numbers, where the free axes stay in order."""
    numbers = DotNumbers.of(op)
    for side in (0, 1):
        while producer(op.operands[side]) == "stablehlo.transpose":
            transpose = op.operands[side].owner
            order = list(ir.DenseI64ArrayAttr(transpose.attributes["permutation"]))
            free = [order[axis] for axis in numbers.free(side, len(order))]
            if free != sorted(free):
                break
            numbers.batches[side][:] = [order[axis] for axis in numbers.batches[side]]
            numbers.contracted[side][:] = [order[axis] for axis in numbers.contracted[side]]
            op.operands[side] = transpose.operands[0]
    op.attributes["dot_dimension_numbers"] = numbers.attribute(op.context)


def fold_merges(op: ir.Operation) -> ir.Value | None:
    """Return the product of the operands before reshapes that merge axes, reshaped as ``op``'s result; None without.

    Batch axes and contracted axes must be merged in the same way on both sides. If the product has another shape than
    ``op``'s result, only reshapes may use the result, into which the new one folds.
    """
    if not all(ir.RankedTensorType(value.type).has_static_shape for value in (*op.operands, *op.results)):
        return None
    groups = [_groups(value) for value in op.operands]
    for folded in ((0, 1), (0,), (1,)):
        if any(groups[side] is None for side in folded):
            continue
        product = _product(op, [groups[side] if side in folded else None for side in (0, 1)])
        if product is not None:
            fold_transposes(product.owner)
            return product if product.type == op.results[0].type else _reshaped(product, op.results[0].type, op)
    return None


def _product(op: ir.Operation, groups: Sequence[Groups | None]) -> ir.Value | None:
    """Emit the product of the sources of the operands that have ``groups``; None if their axes do not fit."""
    numbers = DotNumbers.of(op)
    operands: list[ir.Value] = []
    axes: list[Groups] = []
    for value, merged in zip(op.operands, groups, strict=True):
        operands.append(value if merged is None else value.owner.operands[0])
        rank = ir.RankedTensorType(value.type).rank
        axes.append([[axis] for axis in range(rank)] if merged is None else merged)
    shapes = [ir.RankedTensorType(value.type).shape for value in operands]

    def sizes(side: int, merged: Sequence[int]) -> list[list[int]]:
        return [[shapes[side][axis] for axis in axes[side][number]] for number in merged]

    pairs = (numbers.batches, numbers.contracted)
    if any(sizes(0, left) != sizes(1, right) for left, right in pairs):
        return None
    free = [sizes(side, numbers.free(side, ir.RankedTensorType(op.operands[side].type).rank)) for side in (0, 1)]
    shape = [size for group in (*sizes(0, numbers.batches[0]), *free[0], *free[1]) for size in group]
    if shape != ir.RankedTensorType(op.results[0].type).shape and not _is_reshaped(op.results[0]):
        return None
    split = DotNumbers(
        *(
            (
                [axis for number in left for axis in axes[0][number]],
                [axis for number in right for axis in axes[1][number]],
            )
            for left, right in pairs
        )
    )
    attributes = attributes_of(op) | {"dot_dimension_numbers": split.attribute(op.context)}
    emit = StablehloOps.before(op)
    result = emit.tensor(shape, emit.element(op.results[0]))
    return emit.op("stablehlo.dot_general", [result], operands, attributes).result


def swapped_operands(value: ir.Value, order: Sequence[int]) -> ir.Value | None:
    """Return the transpose ``order`` of ``value``, a matmul, as the matmul of its operands in the other order.

    None if nothing else than the free axes of one side and of the other change places, or others use ``value``.
    """
    op = value.owner
    numbers = DotNumbers.of(op)
    left, right = (numbers.free(side, ir.RankedTensorType(op.operands[side].type).rank) for side in (0, 1))
    batches = len(numbers.batches[0])
    swapped = [*range(batches), *range(batches + len(left), len(order)), *range(batches, batches + len(left))]
    if not left or not right or list(order) != swapped or sum(1 for _ in value.uses) > 1:
        return None
    exchanged = DotNumbers(numbers.batches[::-1], numbers.contracted[::-1])
    attributes = attributes_of(op) | {"dot_dimension_numbers": exchanged.attribute(op.context)}
    emit = StablehloOps.before(op)
    shape = [ir.RankedTensorType(value.type).shape[axis] for axis in order]
    operands = [op.operands[1], op.operands[0]]
    dynamic = ir.ShapedType.get_dynamic_size()
    result = emit.tensor([None if size == dynamic else size for size in shape], emit.element(value))
    return emit.op("stablehlo.dot_general", [result], operands, attributes).result


def _is_reshaped(value: ir.Value) -> bool:
    return all(use.owner.name == "stablehlo.reshape" for use in value.uses)


def _groups(value: ir.Value) -> Groups | None:
    """Return what the reshape that ``value`` is merges; None if it is another operation, or splits an axis."""
    if producer(value) != "stablehlo.reshape":
        return None
    source = ir.RankedTensorType(value.owner.operands[0].type)
    return merged_axes(source.shape, ir.RankedTensorType(value.type).shape) if source.has_static_shape else None


def merged_axes(source: Sequence[int], target: Sequence[int]) -> Groups | None:
    """Return the axes of ``source`` that each axis of ``target`` merges, or inserts; None if an axis is split.

    >>> merged_axes((2, 3, 4), (6, 4, 1))
    [[0, 1], [2], []]
    """
    if 0 in source or 0 in target:
        return None
    groups: Groups = []
    axis = 0
    for size in target:
        group: list[int] = []
        while math.prod(source[member] for member in group) < size and axis < len(source):
            group.append(axis)
            axis += 1
        if size == 1 and axis < len(source) and source[axis] == 1:
            group, axis = [axis], axis + 1
        if math.prod(source[member] for member in group) != size:
            return None
        groups.append(group)
    rest = list(range(axis, len(source)))
    if any(source[member] != 1 for member in rest) or (rest and not groups):
        return None
    if rest:
        groups[-1] += rest
    return groups


@rewrite("fx-importer-merge-dot-dimensions", ops=("stablehlo.dot_general",))
def merge_dot_dimensions(op: ir.Operation) -> None:
    """Merge several batch axes, contracted axes and free axes of matmuls into one: linalg has named operations then."""
    numbers, shapes = DotNumbers.of(op), [StablehloOps.shape(value) for value in op.operands]
    free = [numbers.free(side, len(shapes[side])) for side in (0, 1)]
    parts = [(numbers.batches[side], numbers.contracted[side], free[side]) for side in (0, 1)]
    static = all(isinstance(size, int) for shape in shapes for size in shape)
    if not static or all(len(axes) <= 1 for part in parts for axes in part):
        return
    emit = StablehloOps.before(op)
    operands: list[ir.Value] = []
    merged = DotNumbers(([], []), ([], []))
    sizes: list[int] = []
    for side, (batch, contracted, rest) in enumerate(parts):
        # The order in memory is kept. A vector has fewer axes, as if the others had size 1.
        matrix = [contracted, rest] if min(contracted, default=-1) < min(rest, default=-1) else [rest, contracted]
        axes = [batch, *matrix] if batch else matrix
        ordered = emit.permute(op.operands[side], [axis for part in axes for axis in part])
        shape = [math.prod(shapes[side][axis] or 0 for axis in part) for part in axes]
        operands.append(_reshaped(ordered, emit.tensor(shape, emit.element(ordered)), op))
        merged.batches[side][:] = [0] if batch else []
        merged.contracted[side][:] = [len(axes) - 2 + (matrix[1] is contracted)]
        sizes += [*(shape[:1] if batch and side == 0 else []), math.prod(shapes[side][axis] or 0 for axis in rest)]
    attributes = attributes_of(op) | {"dot_dimension_numbers": merged.attribute(op.context)}
    result = emit.tensor(sizes, emit.element(op.results[0]))
    product = emit.op(op.name, [result], operands, attributes).result
    op.results[0].replace_all_uses_with(_reshaped(product, op.results[0].type, op))
    op.erase()


def _reshaped(value: ir.Value, type_: ir.Type, before: ir.Operation) -> ir.Value:
    """Return ``value`` as ``type_``, by a reshape if it has another type."""
    if value.type == type_:
        return value
    return StablehloOps.before(before).stablehlo("reshape", type_, value)
