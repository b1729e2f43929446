"""Symbolic dimension sizes of StableHLO values, derived from the operands of their defining operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import producer
from fx_importer.mlir.emit.stablehlo import ELEMENTWISE
from fx_importer.rewrites.stablehlo.scalar_values import ScalarValues
from fx_importer.symbolic.polynomials import Atoms, DimensionSize, Polynomial, constant

Shape = tuple[Polynomial, ...]


class DimensionSizes:
    """The dimension sizes of the values of a function, and the elements of its 1-D integer tensors.

    Query in program order, which bounds the recursion.
    """

    def __init__(self, atoms: Atoms):
        self.atoms = atoms
        self.scalars = ScalarValues(atoms)
        self.elements: dict[ir.Value, Shape] = {}
        """The elements of 1-D integer tensors."""
        self._sizes: dict[tuple[ir.Value, int], Polynomial] = {}

    def shape_of(self, value: ir.Value) -> Shape:
        """Return the sizes of ``value``."""
        return tuple(self.along(value, axis) for axis in range(ir.RankedTensorType(value.type).rank))

    def along(self, value: ir.Value, axis: int) -> Polynomial:
        """Return the size of ``value`` along ``axis``."""
        kind = ir.RankedTensorType(value.type)
        if not kind.is_dynamic_dim(axis):
            return constant(kind.get_dim_size(axis))
        if (value, axis) not in self._sizes:
            rule = _RULES.get(producer(value))
            size = rule(self, value.owner, axis) if rule else None
            self._sizes[value, axis] = self.atoms.polynomial(DimensionSize(value, axis)) if size is None else size
        return self._sizes[value, axis]

    def set_size(self, value: ir.Value, axis: int, size: Polynomial) -> None:
        """Record the size of ``value`` along ``axis``."""
        self._sizes[value, axis] = size

    def elements_of(self, value: ir.Value) -> Shape | None:
        """Return the elements of a 1-D tensor of integers; None if they are unknown."""
        if value in self.elements:
            return self.elements[value]
        if (one := self.scalars.value_of(value)) is not None:
            self.elements[value] = (one,)
        elif producer(value) in ("stablehlo.constant", "arith.constant"):
            elements = ir.DenseIntElementsAttr(value.owner.attributes["value"])
            self.elements[value] = tuple(constant(elements[i]) for i in range(len(elements)))
        return self.elements.get(value)


SizeRule = Callable[[DimensionSizes, ir.Operation, int], Polynomial | None]
"""Returns the size of the first result along an axis; None if the operands do not determine it."""


def integer_array(op: ir.Operation, name: str) -> list[int]:
    """Return the elements of the attribute ``name`` of ``op``, an ``array<i64: …>``; an empty list if it is absent."""
    return list(ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else []


def _elementwise(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial | None:
    """Return the size of an operand of the same rank, preferably a constant one."""
    rank = ir.RankedTensorType(op.results[0].type).rank
    known = [sizes.along(operand, axis) for operand in op.operands if ir.RankedTensorType(operand.type).rank == rank]
    return next((factor for factor in known if factor.constant is not None), known[0] if known else None)


def _shape_operand(position: int) -> SizeRule:
    """Return the rule for an operation whose operand ``position`` is its result shape."""

    def rule(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial | None:
        shape = sizes.elements_of(op.operands[position])
        return shape[axis] if shape is not None else None

    return rule


def _transpose(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial:
    return sizes.along(op.operands[0], integer_array(op, "permutation")[axis])


def _broadcast(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial | None:
    dims = integer_array(op, "broadcast_dimensions")
    return sizes.along(op.operands[0], dims.index(axis)) if axis in dims else None


def _reduce(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial:
    reduced = integer_array(op, "dimensions")
    kept = [dim for dim in range(ir.RankedTensorType(op.operands[0].type).rank) if dim not in reduced]
    return sizes.along(op.operands[0], kept[axis])


def _concatenate(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial:
    if axis != ir.IntegerAttr(op.attributes["dimension"]).value:
        known = [sizes.along(operand, axis) for operand in op.operands]
        return next((factor for factor in known if factor.constant is not None), known[0])
    total = constant(0)
    for operand in op.operands:
        total = total + sizes.along(operand, axis)
    return total


def _dot_general(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial:
    position, operand_axis = dot_axes(op)[axis]
    return sizes.along(op.operands[position], operand_axis)


def dot_axes(op: ir.Operation) -> list[tuple[int, int]]:
    """Return, for each result axis of a ``dot_general``, its operand's position and the operand's axis."""
    numbers = stablehlo_d.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batch = [(0, axis) for axis in numbers.lhs_batching_dimensions]
    free: list[tuple[int, int]] = []
    for position, contracted in (
        (0, [*numbers.lhs_batching_dimensions, *numbers.lhs_contracting_dimensions]),
        (1, [*numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions]),
    ):
        rank = ir.RankedTensorType(op.operands[position].type).rank
        free += [(position, axis) for axis in range(rank) if axis not in contracted]
    return batch + free


def _gather(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial | None:
    numbers = stablehlo_d.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    offsets: Sequence[int] = numbers.offset_dims
    if axis in offsets:
        return None
    rank = ir.RankedTensorType(op.operands[1].type).rank
    batch = [dim for dim in range(rank) if dim != numbers.index_vector_dim]
    position = sum(1 for dim in range(axis) if dim not in offsets)
    return sizes.along(op.operands[1], batch[position])


def _convolution(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial | None:
    numbers = stablehlo_d.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    if axis == numbers.output_batch_dimension and ir.IntegerAttr(op.attributes["batch_group_count"]).value == 1:
        return sizes.along(op.operands[0], numbers.input_batch_dimension)
    if axis == numbers.output_feature_dimension:
        return sizes.along(op.operands[1], numbers.kernel_output_feature_dimension)
    spatial: Sequence[int] = numbers.output_spatial_dimensions
    if axis not in spatial:
        return None
    at = spatial.index(axis)
    size = sizes.along(op.operands[0], numbers.input_spatial_dimensions[at])
    kernel = sizes.along(op.operands[1], numbers.kernel_spatial_dimensions[at])
    return _windows(
        *(sizes, size, kernel, _padding(op, at)),
        *(_at(op, name, at) for name in ("window_strides", "lhs_dilation", "rhs_dilation")),
    )


def _reduce_window(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial:
    return _windows(
        *(sizes, sizes.along(op.operands[0], axis)),
        *(constant(integer_array(op, "window_dimensions")[axis]), _padding(op, axis)),
        *(_at(op, name, axis) for name in ("window_strides", "base_dilations", "window_dilations")),
    )


def _windows(
    sizes: DimensionSizes, size: Polynomial, kernel: Polynomial, padding: int, stride: int, interior: int, dilation: int
) -> Polynomial:
    """Return the number of windows, which is at least one in an exported program.

    ``padding`` is the sum of both sides, and ``interior`` the dilation of the input: its interior padding plus one.
    """
    one = constant(1)
    whole = (size - one) * constant(interior) + one + constant(padding)
    rest = whole - (kernel - one) * constant(dilation) - one
    return sizes.atoms.computed("divide", rest, constant(stride)) + one


def _at(op: ir.Operation, name: str, axis: int) -> int:
    """Return an element of the attribute ``name``, an array whose default is all ones."""
    return (integer_array(op, name) or [1] * (axis + 1))[axis]


def _padding(op: ir.Operation, axis: int) -> int:
    """Return the total padding of both sides of ``axis``."""
    if "padding" not in op.attributes:
        return 0
    padding = ir.DenseIntElementsAttr(op.attributes["padding"])
    return padding[2 * axis] + padding[2 * axis + 1]


def _slice(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial | None:
    start, limit, stride = (sizes.elements_of(operand) for operand in op.operands[1:])
    if start is None or limit is None or stride is None or stride[axis].constant is None:
        return None
    step = stride[axis]
    return sizes.atoms.computed("divide", limit[axis] - start[axis] + step - constant(1), step)


def _first_operand(sizes: DimensionSizes, op: ir.Operation, axis: int) -> Polynomial:
    return sizes.along(op.operands[0], axis)


_RULES: dict[str, SizeRule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.convolution": _convolution,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dynamic_broadcast_in_dim": _shape_operand(1),
    "stablehlo.dynamic_gather": _gather,
    "stablehlo.dynamic_iota": _shape_operand(0),
    "stablehlo.dynamic_reshape": _shape_operand(1),
    "stablehlo.gather": _gather,
    "stablehlo.real_dynamic_slice": _slice,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.reverse": _elementwise,
    "stablehlo.scatter": _first_operand,
    "stablehlo.sort": _first_operand,
    "stablehlo.transpose": _transpose,
}
