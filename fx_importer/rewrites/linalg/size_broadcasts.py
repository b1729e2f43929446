"""Fold the broadcasts of axes that have the same dynamic size in both operands."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, terminator
from fx_importer.mlir.indexing_maps import indexing_maps
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.linalg.size_divisions import size_scale

Size = tuple[ir.Value, int | None, int]
"""A value of type index, or a tensor and an axis of dynamic size, and a factor."""


@rewrite("fx-importer-fold-size-broadcasts")
def fold_size_broadcasts(root: ir.Operation) -> None:
    """Replace ``scf.if`` that expands an operand of size 1, where the expanded size is its own size.

    TOSA broadcasts axes of unknown size, so that each addition of two batches has a branch. The time of
    ``eliminate-empty-tensors`` doubles with each branch: a RepViT with a dynamic batch was not compiled in minutes.
    """
    sizes = _SizeSources()
    folded: list[ir.Operation] = []
    for op in operations(root, ("scf.if",)):
        if op.results and len(op.regions) == 2 and all(map(len, (region.blocks for region in op.regions))):
            operands = [_operand(op, number, sizes) for number in range(len(op.results))]
            for result, operand in zip(op.results, operands, strict=True):
                if operand is not None:
                    result.replace_all_uses_with(operand)
            if all(operand is not None for operand in operands):
                folded.append(op)
    for op in folded:
        op.erase()


def _operand(op: ir.Operation, number: int, sizes: _SizeSources) -> ir.Value | None:
    """Return the operand that the result ``number`` of ``op`` is equal to, if it is one."""
    expanded, operand = (terminator(region.blocks[0]).operands[number] for region in op.regions)
    condition = op.operands[0].owner
    if producer(op.operands[0]) != "arith.cmpi" or ir.IntegerAttr(condition.attributes["predicate"]).value != 0:
        return None
    if producer(expanded) != "linalg.generic" or expanded.type != operand.type or len(expanded.owner.operands) != 2:
        return None
    if expanded.owner.operands[0] != operand or _constant(condition.operands[1]) != 1:
        return None
    body = expanded.owner.regions[0].blocks[0]
    read, written = indexing_maps(expanded.owner)
    if terminator(body).operands[0] != body.arguments[0] or written != ir.AffineMap.get_identity(
        written.n_dims, op.context
    ):
        return None
    size = sizes.of(condition.operands[0])
    shape = ir.RankedTensorType(operand.type)
    for axis, expression in enumerate(read.results):
        same = expression == written.results[axis]
        if not shape.is_dynamic_dim(axis):
            if not same and shape.get_dim_size(axis) != 1:
                return None
            continue
        own = sizes.of_axis(operand, axis)
        if sizes.of_axis(expanded, axis) != own or not (same or own == size):
            return None
    return operand


def _constant(value: ir.Value) -> int | None:
    return ir.IntegerAttr(value.owner.attributes["value"]).value if producer(value) == "arith.constant" else None


class _SizeSources:
    """The sources of sizes: an index, or an axis of a tensor, and a factor."""

    def __init__(self) -> None:
        self._values: dict[ir.Value, Size] = {}
        self._axes: dict[tuple[ir.Value, int], Size] = {}

    def of(self, value: ir.Value) -> Size:
        """Return the source of ``value``, an index."""
        if value not in self._values:
            self._values[value] = self._computed(value)
        return self._values[value]

    def of_axis(self, tensor: ir.Value, axis: int) -> Size:
        """Return the source of the size of an axis of ``tensor``."""
        if (tensor, axis) not in self._axes:
            self._axes[tensor, axis] = self._of_result(tensor, axis)
        return self._axes[tensor, axis]

    def _computed(self, value: ir.Value) -> Size:
        opaque = value, None, 1
        name = producer(value)
        if name == "tensor.dim" and (axis := _constant(value.owner.operands[1])) is not None:
            return self.of_axis(value.owner.operands[0], axis)
        if name == "arith.maxui":
            left, right = map(self.of, value.owner.operands)
            return left if left == right else opaque
        if name == "arith.divsi" and (divisor := _constant(value.owner.operands[1])):
            source, axis, factor = self.of(value.owner.operands[0])
            return (source, axis, factor // divisor) if divisor > 0 and factor % divisor == 0 else opaque
        if name == "affine.apply" and (scale := size_scale(ir.AffineMapAttr(value.owner.attributes["map"]).value)):
            source, axis, factor = self.of(value.owner.operands[0])
            return source, axis, factor * scale
        return opaque

    def _of_result(self, tensor: ir.Value, axis: int) -> Size:
        name, opaque = producer(tensor), (tensor, axis, 1)
        if not ir.RankedTensorType(tensor.type).is_dynamic_dim(axis):
            return opaque
        operands = tensor.owner.operands if name else []
        if name and name.startswith("linalg.") and len(operands) > len(tensor.owner.results):
            number = ir.OpResult(tensor).result_number
            return self.of_axis(operands[len(operands) - len(tensor.owner.results) + number], axis)
        if name == "tensor.empty":
            return self.of(operands[_dynamic_before(tensor, axis)])
        if name == "tensor.expand_shape":
            return self.of(operands[1 + _dynamic_before(tensor, axis)])
        if name == "tensor.collapse_shape":
            group = [ir.IntegerAttr(at).value for at in ir.ArrayAttr(tensor.owner.attributes["reassociation"])[axis]]
            return self._collapsed(operands[0], group) or opaque
        if name in ("tensor.cast", "tensor.insert_slice"):
            return self.of_axis(operands[int(name == "tensor.insert_slice")], axis)
        return opaque

    def _collapsed(self, tensor: ir.Value, axes: list[int]) -> Size | None:
        """Return the product of the sizes of ``axes``, of which one is dynamic."""
        shape = ir.RankedTensorType(tensor.type)
        dynamic = [axis for axis in axes if shape.is_dynamic_dim(axis)]
        if len(dynamic) != 1:
            return None
        source, axis, factor = self.of_axis(tensor, dynamic[0])
        for static in set(axes) - set(dynamic):
            factor *= shape.get_dim_size(static)
        return source, axis, factor


def _dynamic_before(tensor: ir.Value, axis: int) -> int:
    return sum(map(ir.RankedTensorType(tensor.type).is_dynamic_dim, range(axis)))
