"""Weights of compiled code: one argument, a table of buffers.

LLVM never sees a weight: 400 MB would take it 8 s and 1.2 GB. Nor does any pass: code does not depend on the elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.constant_arguments import append_argument, resource_constants
from fx_importer.mlir.elided_weights import HandleScope, WeightHandle
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.linalg.loop_interchange import permute_operand_map, row_order, transposed_axes
from fx_importer.rewrites.llvm.arena import aligned, view_of_block
from fx_importer.rewrites.llvm.entry_point import entry_point, read_fact, required_fact, write_fact

_FACT = "weights"


@dataclass(frozen=True)
class HoistedWeight:
    """An entry of the table."""

    number: int
    """Of the weight, in its handle."""
    shape: tuple[int, ...]
    itemsize: int
    order: tuple[int, ...] | None
    """The permutation of the axes of ``shape`` that the code reads; None for the weight as it is."""
    place: int | None = field(default=None, compare=False)
    """Where it is in the block of `pack_weights`, if that is known before."""

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) * self.itemsize


def handle_of(value: ir.Attribute | None) -> WeightHandle | None:
    """Return the handle that a resource is; None for other values."""
    return None if value is None else WeightHandle.of(value, HandleScope.LOAD)


@rewrite("fx-importer-hoist-weights")
def hoist_weights(module: ir.Operation) -> None:
    """Turn the handles of weights in the entry point into buffers of a new last argument, a table.

    Its entries are written to an attribute of the module, see `weights_of`.

    The weight is transposed for an operation that only transposes it, which is replaced, and for a contraction that
    reads along another axis than the last (`row_order`).
    """
    _hoist(entry_point(module), _Table)


@rewrite("fx-importer-pack-weights")
def pack_weights(module: ir.Operation) -> None:
    """Turn the handles of weights in the entry point into parts of a new last argument, one block of bytes.

    As `hoist_weights`. Entries that `weights_of` returns before this pass, as another module has them, begin the block.
    """
    _hoist(entry_point(module), _Block)


class _Table:
    """Weights in buffers of their own: an argument is an array of descriptors."""

    def __init__(self, function: func_d.FuncOp, count: int):
        self.entries: list[HoistedWeight] = []
        self._bytes = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], ir.IntegerType.get_signless(8))
        self._table = append_argument(function, ir.MemRefType.get([count], self._bytes))

    @staticmethod
    def placed(_function: func_d.FuncOp) -> set[int]:
        """Return the numbers of the weights whose place in memory is known before."""
        return set()

    def view(self, emit: ArithOps, entry: HoistedWeight, kind: ir.MemRefType) -> ir.Value:
        """Emit the buffer of ``entry``, a new one."""
        number = emit.index(len(self.entries))
        self.entries.append(entry)
        buffer = emit.op("memref.load", [self._bytes], [self._table, number]).result
        return view_of_block(emit, buffer, 0, kind)


class _Block:
    """Weights one after the other, each aligned, in an argument of bytes."""

    def __init__(self, function: func_d.FuncOp, _count: int):
        self.entries = _entries_before(function)
        dynamic = ir.ShapedType.get_dynamic_size()
        self._block = append_argument(function, ir.MemRefType.get([dynamic], ir.IntegerType.get_signless(8)))

    @staticmethod
    def placed(function: func_d.FuncOp) -> set[int]:
        """Return the numbers of the weights whose place in memory is known before."""
        return {entry.number for entry in _entries_before(function) if entry.place is not None}

    def view(self, emit: ArithOps, entry: HoistedWeight, kind: ir.MemRefType) -> ir.Value:
        """Emit the buffer of ``entry``."""
        if entry not in self.entries:
            self.entries.append(entry)
        return view_of_block(emit, self._block, offsets_of(self.entries)[self.entries.index(entry)], kind)


def _entries_before(function: func_d.FuncOp) -> list[HoistedWeight]:
    module = function.operation.parent
    return weights_of(module) if module is not None and has_weights(module) else []


def file_aligned(offset: int) -> int:
    """Return where a file can be mapped in the block of `pack_weights`, from ``offset`` on, whatever the page size."""
    return -(-offset // FILE_ALIGNMENT) * FILE_ALIGNMENT


FILE_ALIGNMENT = 1 << 16


def offsets_of(entries: Sequence[HoistedWeight]) -> list[int]:
    """Return where each weight begins in the block of `pack_weights`, and last the bytes of the block.

    Weights follow those whose place is known before.
    """
    placed = max((entry.place + entry.nbytes for entry in entries if entry.place is not None), default=0)
    sizes = (0 if entry.place is not None else aligned(entry.nbytes) for entry in entries)
    offsets = [*itertools.accumulate(sizes, initial=file_aligned(placed))]
    return [
        *(offset if entry.place is None else entry.place for entry, offset in zip(entries, offsets, strict=False)),
        offsets[-1],
    ]


def _hoist(function: func_d.FuncOp, memory: type[_Table | _Block]) -> None:
    from fx_importer.mlir.dtypes import DTYPES, UNSIGNED

    constants = resource_constants(function, "arith.constant")
    numbers = {value: handle.number for value in constants if (handle := handle_of(value))}
    placed = memory.placed(function)
    uses: dict[tuple[ir.Attribute, tuple[int, ...] | None, ir.Type], list[ir.OpOperand]] = {}
    for value in numbers:
        for use in [use for op in constants[value] for use in op.results[0].uses]:
            layout = _layout(use, memory is _Block, stays=numbers[value] in placed)
            uses.setdefault((value, *layout), []).append(use)
    replaced: list[ir.Operation] = []
    with function.context, function.location:
        hoisted = memory(function, len(uses))
        emit = ArithOps(ir.InsertionPoint.at_block_begin(function.entry_block), function.location)
        for (value, order, result), readers in uses.items():
            kind = ir.RankedTensorType(value.type)
            itemsize = (DTYPES | UNSIGNED)[str(kind.element_type)][0].itemsize
            entry = HoistedWeight(numbers[value], tuple(kind.shape), itemsize, order)
            view = hoisted.view(emit, entry, ir.MemRefType.get(ir.RankedTensorType(result).shape, kind.element_type))
            restrict = {"restrict": ir.UnitAttr.get()}  # without ``writable``: bufferization never writes to it
            tensor = emit.op("bufferization.to_tensor", [result], [view], restrict).result
            for use in readers:
                if transposed_axes(use.owner) is not None:
                    use.owner.results[0].replace_all_uses_with(tensor)
                    replaced.append(use.owner)
                    continue
                if order is not None:
                    permute_operand_map(use.owner, use.operand_number, order)
                use.owner.operands[use.operand_number] = tensor
        # After all insertions: they are before one of these operations.
        for op in (*replaced, *(op for value in numbers for op in constants[value])):
            op.erase()
    if (module := function.operation.parent) is not None:
        write_weights(module, hoisted.entries)


def write_weights(module: ir.Operation, entries: Sequence[HoistedWeight]) -> None:
    """Have the block of `pack_weights` begin with ``entries``."""
    write_fact(module, _FACT, [asdict(entry) for entry in entries])


def has_weights(module: ir.Module | ir.Operation) -> bool:
    """Return whether a pass wrote the entries of `weights_of`."""
    return read_fact(module, _FACT) is not None


def weights_of(module: ir.Module | ir.Operation) -> list[HoistedWeight]:
    """Return the entries of the table that the entry point takes."""
    return [HoistedWeight(**entry) for entry in required_fact(module, _FACT)]


def _layout(use: ir.OpOperand, unit_axes: bool, *, stays: bool) -> tuple[tuple[int, ...] | None, ir.Type]:
    """Return the order of the axes of a weight that a reader wants, and the type that it reads then.

    A weight that ``stays`` is transposed only for an operation that transposes it.
    """
    order = transposed_axes(use.owner)
    if order is not None:
        return order, use.owner.results[0].type
    type_ = ir.RankedTensorType(use.owner.operands[use.operand_number].type)
    order = None if stays else row_order(use.owner, use.operand_number, unit_axes=unit_axes)
    if order is None:
        return None, type_
    sizes, unknown = [type_.shape[axis] for axis in order], ir.Location.unknown(type_.context)
    return order, ir.RankedTensorType.get(sizes, type_.element_type, loc=unknown)
