"""Results that a function writes to memory of its caller."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.constant_arguments import append_argument
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import producer, replace, terminator, update_function_type
from fx_importer.mlir.functions import state_aliases
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.llvm.arena import memory_of
from fx_importer.rewrites.llvm.entry_point import entry_point, write_fact

DESTINATIONS = "result_arguments"
"""The fact which argument each result is written to, in order: a new one, or that of the state that it replaces."""
INPUTS = "inputs"
"""The fact how many arguments the model has; the weights follow them."""


@rewrite("fx-importer-return-by-destination")
def return_by_destination(module: ir.Operation) -> None:
    """Write the results of the entry point to new last arguments, and new values of state to the old ones, at the end.

    Arguments are memrefs of the types of results; a number is a memref of rank 0. A result that is a buffer of its own
    is computed where it is wanted; others are copied when all is computed, since they may be views of arguments.
    """
    function = entry_point(module)
    end = terminator(function.body.blocks[len(function.body.blocks) - 1])
    returned = list(end.operands)
    aliases = state_aliases(function)
    write_fact(module, INPUTS, len(function.arguments) - 1)
    positions: list[int] = []
    copies: list[tuple[ir.Value, ir.Value]] = []
    with function.context, function.location:
        for number, value in enumerate(returned):
            if number in aliases:
                positions.append(aliases[number])
                copies.append((value, function.arguments[aliases[number]]))
                continue
            positions.append(len(function.arguments))
            destination = append_argument(function, _destination(value.type))
            if returned.count(value) > 1 or not _compute_in(value, destination):
                copies.append((value, destination))
    _copy(ArithOps.before(end), copies)
    ArithOps.before(end).op("func.return", [])
    end.erase()
    if "res_attrs" in function.attributes:
        del function.attributes["res_attrs"]
    update_function_type(function)
    write_fact(module, DESTINATIONS, positions)


def _destination(kind: ir.Type) -> ir.Type:
    if not isinstance(kind, ir.MemRefType):
        return ir.MemRefType.get([], kind)
    return ir.MemRefType.get(kind.shape, kind.element_type)


def _compute_in(value: ir.Value, destination: ir.Value) -> bool:
    """Use ``destination`` for the buffer that ``value`` is, or is a reshape of; return False if that cannot be."""
    buffer = value
    while producer(buffer) in ("memref.collapse_shape", "memref.expand_shape"):
        buffer = buffer.owner.operands[0]
    if producer(buffer) != "memref.alloc" or not isinstance(buffer.owner.parent.opview, func_d.FuncOp):
        return False
    kinds = [ir.MemRefType(operand.type) for operand in (value, buffer)]
    if any(not kind.has_static_shape or kind.layout != _identity(kind) for kind in kinds):
        return False
    allocation = buffer.owner
    emit = ArithOps.before(allocation)
    if kinds[1] != destination.type:
        strides, _ = kinds[1].get_strides_and_offset()
        numbers = {"static_offsets": [0], "static_sizes": kinds[1].shape, "static_strides": strides}
        attributes: dict[str, ir.Attribute] = {key: emit.array(number) for key, number in numbers.items()}
        attributes["operandSegmentSizes"] = emit.segments(1, 0, 0, 0)
        destination = emit.op("memref.reinterpret_cast", [kinds[1]], [destination], attributes).result
    replace(allocation, destination)
    return True


def _identity(kind: ir.MemRefType) -> ir.Attribute:
    return ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank, kind.context))


def _copy(emit: ArithOps, copies: Sequence[tuple[ir.Value, ir.Value]]) -> None:
    """Emit copies. What may be a view of an argument is copied to memory of its own before any argument is written."""
    sources: list[ir.Value] = []
    for value, _ in copies:
        if len(copies) > 1 and isinstance(value.type, ir.MemRefType) and not isinstance(memory_of(value), ir.Value):
            kind = ir.MemRefType(value.type)
            plain = ir.MemRefType.get(kind.shape, kind.element_type, loc=emit.location)
            sizes = [emit.index(emit.size(value, axis)) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
            none = {"operandSegmentSizes": emit.segments(len(sizes), 0)}
            buffer = emit.op("memref.alloc", [plain], sizes, none).result
            emit.op("memref.copy", [], [value, buffer])
            value = buffer
        sources.append(value)
    for value, (_, destination) in zip(sources, copies, strict=True):
        if isinstance(value.type, ir.MemRefType):
            emit.op("memref.copy", [], [value, destination])
        else:
            emit.op("memref.store", [], [value, destination])
