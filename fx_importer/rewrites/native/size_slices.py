"""Sizes of buffers as expressions of the sizes of arguments, computed again at another place."""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.diagnostics.mlir_diagnostics import read_location, user_frame
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import Size, attributes_of, producer


class SizeSlice:
    """Computes sizes of buffers again, where ``emit`` inserts, of sizes of arguments.

    ``dimensions`` has those by the number of the argument and the axis.
    """

    def __init__(self, emit: ArithOps, dimensions: Mapping[tuple[int, int], ir.Value]):
        self.emit = emit
        self._dimensions = dimensions
        self._values: dict[ir.Value, ir.Value] = {}

    def value(self, value: ir.Value) -> ir.Value:
        """Return ``value`` at this place.

        Raises:
            UsageError: if it depends on elements of tensors.
        """
        if value not in self._values:
            self._values[value] = self._computed(value)
        return self._values[value]

    def product(self, left: Size, right: Size) -> Size:
        """Emit a product."""
        return self.emit.index_op("muli", left, right)

    def positive(self, size: Size) -> Size:
        """Return ``size``, which is not negative."""
        return size

    def _computed(self, value: ir.Value) -> ir.Value:
        op = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if op is not None and op.name == "memref.dim":
            axis = _constant(op.operands[1])
            if axis is not None:
                return self.emit.index(self._size(op.operands[0], axis, value))
        if op is not None and op.name == "memref.load" and len(op.operands) == 2:
            position = _constant(op.operands[1])
            if position is not None:
                return self._element(op.operands[0], position, value)
        if op is None or op.name.partition(".")[0] not in ("arith", "affine", "index"):
            raise _data_dependent(value)
        operands = [self.value(operand) for operand in op.operands]
        if op.name in _DIVISIONS:  # the code may not divide where a size is 0, and here nothing may fail
            one = self.emit.constant_integer(1, operands[1].type)
            operands[1] = self.emit.value("arith.maxsi", one.type, operands[1], one)
        if op.name == "arith.muli" and isinstance(value.type, ir.IndexType):
            return self.emit.index(self.product(*operands))
        return self.emit.op(op.name, [result.type for result in op.results], operands, attributes_of(op)).result

    def _size(self, buffer: ir.Value, axis: int, value: ir.Value) -> Size:
        """Return the size of ``buffer`` along ``axis``, for ``value``."""
        kind = ir.MemRefType(buffer.type)
        if not kind.is_dynamic_dim(axis):
            return kind.get_dim_size(axis)
        if isinstance(buffer.owner, ir.Block):
            dimension = (buffer.arg_number, axis) if isinstance(buffer, ir.BlockArgument) else (-1, axis)
            if not isinstance(buffer.owner.owner.opview, func_d.FuncOp) or dimension not in self._dimensions:
                raise _data_dependent(value)
            return self._dimensions[dimension]
        op = buffer.owner.operation
        first = _first_size(op)
        if first is not None:  # the sizes that are not static are operands, in order
            return self.value(op.operands[first + sum(kind.is_dynamic_dim(dim) for dim in range(axis))])
        if op.name == "memref.cast":
            return self._size(op.operands[0], axis, value)
        if op.name == "memref.transpose":
            source = ir.AffineMapAttr(op.attributes["permutation"]).value.results[axis]
            return self._size(op.operands[0], ir.AffineDimExpr(source).position, value)
        if op.name == "memref.collapse_shape":
            size: Size = 1
            for source in ir.ArrayAttr(ir.ArrayAttr(op.attributes["reassociation"])[axis]):
                size = self.product(size, self._size(op.operands[0], ir.IntegerAttr(source).value, value))
            return size
        if op.name == "memref.reshape":
            return self._as_index(self._element(op.operands[1], axis, value))
        if op.name == "arith.select":
            return self._selected(op.operands[0], op.operands[1], op.operands[2], axis, value)
        if op.name == "scf.if":
            number = list(op.results).index(buffer)
            yes, no = (list(region.blocks[0].operations)[-1].operands[number] for region in op.regions)
            return self._selected(op.operands[0], yes, no, axis, value)
        raise _data_dependent(value)

    def _selected(self, condition: ir.Value, yes: ir.Value, no: ir.Value, axis: int, value: ir.Value) -> ir.Value:
        sizes = [self.emit.index(self._size(branch, axis, value)) for branch in (yes, no)]
        return self.emit.select_value(self.value(condition), *sizes)

    def _as_index(self, size: ir.Value) -> ir.Value:
        return size if isinstance(size.type, ir.IndexType) else self.emit.value("arith.index_cast", "index", size)

    def _element(self, buffer: ir.Value, position: int, value: ir.Value) -> ir.Value:
        """Return the element of a vector of sizes: a buffer that nothing writes but one store of each element."""
        if producer(buffer) not in ("memref.alloc", "memref.view"):
            raise _data_dependent(value)
        stored: list[ir.Value] = []
        for use in buffer.uses:
            user = use.owner.operation
            if user.name == "memref.store" and use.operand_number == 1 and len(user.operands) == 3:
                written = _constant(user.operands[2])
                if written is None:
                    raise _data_dependent(value)
                stored += [user.operands[0]] * (written == position)
            elif user.name not in ("memref.load", "memref.dim") and (user.name, use.operand_number) != (
                "memref.reshape",
                1,
            ):
                raise _data_dependent(value)
        if len(stored) != 1:
            raise _data_dependent(value)
        return self.value(stored[0])


class CheckedSlice(SizeSlice):
    """Computes sizes, and whether all of them fit in an index: sizes of inputs alone may be too large."""

    def __init__(self, emit: ArithOps, dimensions: Mapping[tuple[int, int], ir.Value]):
        super().__init__(emit, dimensions)
        self.fits: ir.Value = emit.constant_integer(1, ir.IntegerType.get_signless(1))

    def product(self, left: Size, right: Size) -> Size:
        """Emit a product, and check it by a division."""
        emit, product = self.emit, super().product(left, right)
        if not isinstance(product, int):
            one = emit.index(1)
            divisor = emit.index_op("maxsi", left, one)
            quotient = emit.index_op("divsi", product, divisor)
            least = emit.compare_integers("slt", emit.index(left), one)
            exact = emit.compare_integers("eq", emit.index(quotient), emit.index(right))
            self._require(emit.value("arith.ori", "i1", least, exact))
        return product

    def positive(self, size: Size) -> Size:
        """Return ``size``, and check it."""
        if not isinstance(size, int):
            nonnegative = self.emit.compare_integers("sge", size, self.emit.index(0))
            self._require(nonnegative)
        return size

    def _require(self, holds: ir.Value) -> None:
        self.fits = self.emit.value("arith.andi", "i1", self.fits, holds)


_DIVISIONS = tuple(
    f"arith.{name}" for name in ("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui")
)


def _first_size(op: ir.Operation) -> int | None:
    """Return the number of the operand that is the first size of the result; None if sizes are not operands."""
    if op.name in ("memref.subview", "memref.reinterpret_cast"):
        return 1 + ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])[1]
    return {"memref.alloc": 0, "memref.expand_shape": 1, "memref.view": 2}.get(op.name)


def _constant(value: ir.Value) -> int | None:
    return ir.IntegerAttr(value.owner.attributes["value"]).value if producer(value) == "arith.constant" else None


def _data_dependent(value: ir.Value) -> UsageError:
    where = ""
    if not isinstance(value.owner, ir.Block):
        frame = user_frame(read_location(value.owner.location)[0])
        where = f" by {value.owner.name}" + (f", {frame[0]}:{frame[1]}" if frame else "")
    return UsageError(
        f"a buffer's size is not known before the call: it is computed{where}. Native code allocates no memory: sizes "
        "have to follow from the sizes of the inputs"
    )
