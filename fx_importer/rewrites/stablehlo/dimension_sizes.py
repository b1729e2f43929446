"""How large a result is along an axis, said by what the operation takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit import producer
from fx_importer.rewrites.stablehlo.scalar_values import Scalars
from fx_importer.rewrites.stablehlo.size_polynomials import Atoms, Extent, Integer, constant

Shape = tuple[Integer, ...]


class Extents:
    """The sizes of the values of a function, and the integers that its other values hold.

    Ask in the order of the program: then no answer takes a deep recursion.
    """

    def __init__(self, atoms: Atoms):
        self.atoms = atoms
        self.scalars = Scalars(atoms)
        self.shapes: dict[ir.Value, Shape] = {}
        """What one-dimensional tensors of integers hold."""
        self._found: dict[tuple[ir.Value, int], Integer] = {}

    def of(self, value: ir.Value) -> Shape:
        """Return the sizes of ``value``."""
        return tuple(self.along(value, axis) for axis in range(ir.RankedTensorType(value.type).rank))

    def along(self, value: ir.Value, axis: int) -> Integer:
        """Return the size of ``value`` along ``axis``."""
        kind = ir.RankedTensorType(value.type)
        if not kind.is_dynamic_dim(axis):
            return constant(kind.get_dim_size(axis))
        if (value, axis) not in self._found:
            rule = _RULES.get(producer(value))
            found = rule(self, value.owner, axis) if rule else None
            self._found[value, axis] = self.atoms.integer(Extent(value, axis)) if found is None else found
        return self._found[value, axis]

    def tell(self, value: ir.Value, axis: int, size: Integer) -> None:
        """Say what the size of ``value`` along ``axis`` is."""
        self._found[value, axis] = size

    def held(self, value: ir.Value) -> Shape | None:
        """Return what a one-dimensional tensor of integers holds, if that is known."""
        if value in self.shapes:
            return self.shapes[value]
        if (one := self.scalars.of(value)) is not None:
            self.shapes[value] = (one,)
        elif producer(value) in ("stablehlo.constant", "arith.constant"):
            held = ir.DenseIntElementsAttr(value.owner.attributes["value"])
            self.shapes[value] = tuple(constant(held[i]) for i in range(len(held)))
        return self.shapes.get(value)


Rule = Callable[[Extents, ir.Operation, int], Integer | None]


def integers(op: ir.Operation, name: str) -> list[int]:
    """Return the attribute ``name`` of ``op``, an array of integers; none, if it is not there."""
    return list(ir.DenseI64ArrayAttr(op.attributes[name])) if name in op.attributes else []


def _elementwise(extents: Extents, op: ir.Operation, axis: int) -> Integer | None:
    """Any operand's, if it has as many axes; one that is known rather than another."""
    rank = ir.RankedTensorType(op.results[0].type).rank
    found = [extents.along(operand, axis) for operand in op.operands if ir.RankedTensorType(operand.type).rank == rank]
    return next((each for each in found if each.constant is not None), found[0] if found else None)


def _held(position: int) -> Rule:
    def rule(extents: Extents, op: ir.Operation, axis: int) -> Integer | None:
        held = extents.held(op.operands[position])
        return held[axis] if held is not None else None

    return rule


def _transpose(extents: Extents, op: ir.Operation, axis: int) -> Integer:
    return extents.along(op.operands[0], integers(op, "permutation")[axis])


def _broadcast(extents: Extents, op: ir.Operation, axis: int) -> Integer | None:
    dims = integers(op, "broadcast_dimensions")
    return extents.along(op.operands[0], dims.index(axis)) if axis in dims else None


def _reduce(extents: Extents, op: ir.Operation, axis: int) -> Integer:
    gone = integers(op, "dimensions")
    kept = [each for each in range(ir.RankedTensorType(op.operands[0].type).rank) if each not in gone]
    return extents.along(op.operands[0], kept[axis])


def _concatenate(extents: Extents, op: ir.Operation, axis: int) -> Integer:
    if axis != ir.IntegerAttr(op.attributes["dimension"]).value:
        found = [extents.along(operand, axis) for operand in op.operands]
        return next((each for each in found if each.constant is not None), found[0])
    total = constant(0)
    for operand in op.operands:
        total = total + extents.along(operand, axis)
    return total


def _dot_general(extents: Extents, op: ir.Operation, axis: int) -> Integer:
    from_, of = dot_axes(op)[axis]
    return extents.along(op.operands[from_], of)


def dot_axes(op: ir.Operation) -> list[tuple[int, int]]:
    """Return, for each axis of a ``dot_general``, the operand that it comes from, and which axis of it."""
    numbers = stablehlo_d.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batch = [(0, axis) for axis in numbers.lhs_batching_dimensions]
    free: list[tuple[int, int]] = []
    for position, taken in (
        (0, [*numbers.lhs_batching_dimensions, *numbers.lhs_contracting_dimensions]),
        (1, [*numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions]),
    ):
        rank = ir.RankedTensorType(op.operands[position].type).rank
        free += [(position, axis) for axis in range(rank) if axis not in taken]
    return batch + free


def _gather(extents: Extents, op: ir.Operation, axis: int) -> Integer | None:
    numbers = stablehlo_d.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    offsets: Sequence[int] = numbers.offset_dims
    if axis in offsets:
        return None
    rank = ir.RankedTensorType(op.operands[1].type).rank
    batch = [each for each in range(rank) if each != numbers.index_vector_dim]
    position = sum(1 for each in range(axis) if each not in offsets)
    return extents.along(op.operands[1], batch[position])


def _convolution(extents: Extents, op: ir.Operation, axis: int) -> Integer | None:
    numbers = stablehlo_d.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    if axis == numbers.output_batch_dimension and ir.IntegerAttr(op.attributes["batch_group_count"]).value == 1:
        return extents.along(op.operands[0], numbers.input_batch_dimension)
    spatial: Sequence[int] = numbers.output_spatial_dimensions
    if axis not in spatial:
        return None
    at = spatial.index(axis)
    size = extents.along(op.operands[0], numbers.input_spatial_dimensions[at])
    kernel = extents.along(op.operands[1], numbers.kernel_spatial_dimensions[at])
    return _windows(
        *(extents, size, kernel, _padding(op, at)),
        *(_at(op, name, at) for name in ("window_strides", "lhs_dilation", "rhs_dilation")),
    )


def _reduce_window(extents: Extents, op: ir.Operation, axis: int) -> Integer:
    return _windows(
        *(extents, extents.along(op.operands[0], axis)),
        *(constant(integers(op, "window_dimensions")[axis]), _padding(op, axis)),
        *(_at(op, name, axis) for name in ("window_strides", "base_dilations", "window_dilations")),
    )


def _windows(
    extents: Extents, size: Integer, kernel: Integer, padding: int, stride: int, spread: int, dilation: int
) -> Integer:
    """How many windows there are: at least one, where a program is exported."""
    one = constant(1)
    whole = (size - one) * constant(spread) + one + constant(padding)
    rest = whole - (kernel - one) * constant(dilation) - one
    return extents.atoms.computed("divide", rest, constant(stride)) + one


def _at(op: ir.Operation, name: str, axis: int) -> int:
    return (integers(op, name) or [1] * (axis + 1))[axis]


def _padding(op: ir.Operation, axis: int) -> int:
    """Return how much is added along ``axis``."""
    if "padding" not in op.attributes:
        return 0
    padding = ir.DenseIntElementsAttr(op.attributes["padding"])
    return padding[2 * axis] + padding[2 * axis + 1]


def _slice(extents: Extents, op: ir.Operation, axis: int) -> Integer | None:
    start, limit, stride = (extents.held(operand) for operand in op.operands[1:])
    if start is None or limit is None or stride is None or stride[axis].constant is None:
        return None
    step = stride[axis]
    return extents.atoms.computed("divide", limit[axis] - start[axis] + step - constant(1), step)


def _first(extents: Extents, op: ir.Operation, axis: int) -> Integer:
    return extents.along(op.operands[0], axis)


_ELEMENTWISE = (
    "abs",
    "add",
    "and",
    "atan2",
    "cbrt",
    "ceil",
    "clamp",
    "compare",
    "complex",
    "convert",
    "cosine",
    "count_leading_zeros",
    "divide",
    "exponential",
    "exponential_minus_one",
    "floor",
    "imag",
    "is_finite",
    "log",
    "log_plus_one",
    "logistic",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "not",
    "or",
    "popcnt",
    "power",
    "real",
    "remainder",
    "reverse",
    "round_nearest_afz",
    "round_nearest_even",
    "rsqrt",
    "select",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sine",
    "sqrt",
    "subtract",
    "tan",
    "tanh",
    "xor",
)

_RULES: dict[str, Rule] = {
    **{f"stablehlo.{name}": _elementwise for name in _ELEMENTWISE},
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.convolution": _convolution,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dynamic_broadcast_in_dim": _held(1),
    "stablehlo.dynamic_gather": _gather,
    "stablehlo.dynamic_iota": _held(0),
    "stablehlo.dynamic_reshape": _held(1),
    "stablehlo.gather": _gather,
    "stablehlo.real_dynamic_slice": _slice,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.scatter": _first,
    "stablehlo.sort": _first,
    "stablehlo.transpose": _transpose,
}
