"""Weights of compiled code: one argument, a table of buffers that alias the memory of the module's resources.

LLVM never sees a weight: 400 MB would take it 8 s and 1.2 GB. Nor does any pass: code does not depend on the elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fx_importer.calls.call_signature import UNSIGNED
from fx_importer.calls.memref import DTYPES, describe
from fx_importer.engines.jit.arena import view_of_block
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.constant_arguments import append_argument, missing_data, resource_constants
from fx_importer.mlir.elided_weights import HandleScope, WeightHandle
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import Emitter
from fx_importer.mlir.resources import has_data, key_of, resource, resource_bytes, resource_of
from fx_importer.mlir.walk import operations
from fx_importer.rewrites.linalg.loop_interchange import permute_operand_map, row_order, transposed_axes

_SMALLEST = 1024
"""In bytes. Smaller weights stay constants: LLVM may fold them."""
_DTYPES = DTYPES | UNSIGNED
_CONSTANTS = {"arith.constant": "value", "stablehlo.constant": "value", "tosa.const": "values"}
"""The attribute of each operation that has weights."""


@dataclass(frozen=True)
class Resource:
    """A resource that a handle stands for, and its bytes."""

    value: ir.Attribute
    data: np.ndarray


def elide_weights(module: ir.Module) -> list[Resource]:
    """Replace the large resources of constants in ``module`` by handles, whose numbers are their positions here.

    Raises:
        UsageError: if one has no data.
    """
    for op in operations(module.operation, ("stablehlo.constant",)):
        _without_sign(op)
    found: list[Resource] = []
    handles: dict[ir.Attribute, ir.Attribute] = {}
    for op in operations(module.operation, _CONSTANTS):
        name = _CONSTANTS[op.name]
        value = resource_of(op, name)
        if value is None:
            continue
        if value not in handles:
            data = _bytes_of(value)
            handles[value] = value
            if data is not None:
                handles[value] = WeightHandle(HandleScope.LOAD, len(found)).attribute(value.type)
                found.append(Resource(value, data))
        op.attributes[name] = handles[value]
    return found


def _without_sign(op: ir.Operation) -> None:
    """Give a resource of unsigned integers a signless type: StableHLO's lowering converts the type of results only."""
    value, given = resource_of(op), op.results[0].type
    if value is None or not (element := str(ir.RankedTensorType(given).element_type)).startswith("ui"):
        return
    data = resource_bytes(value, math.prod(ir.RankedTensorType(given).shape) * _DTYPES[element][0].itemsize)
    if data is None:
        return
    emit = Emitter.before(op)
    signless = emit.type(str(given).replace(element, element[1:]))
    constant = emit.op("stablehlo.constant", [signless], (), {"value": resource(data, key_of(value), signless)})
    op.results[0].replace_all_uses_with(emit.value("stablehlo.bitcast_convert", given, constant.result))
    op.erase()


def link_weights(module: ir.Module, resources: Sequence[Resource]) -> bool:
    """Undo `elide_weights` in a ``module`` of linalg, and return whether it had a handle."""
    found = {op: handle for op in operations(module.operation, _CONSTANTS) if (handle := _handle(resource_of(op)))}
    for op, handle in found.items():
        op.attributes["value"] = resources[handle.number].value
    return bool(found)


def _handle(value: ir.Attribute | None) -> WeightHandle | None:
    return None if value is None else WeightHandle.of(value, HandleScope.LOAD)


def _bytes_of(value: ir.Attribute) -> np.ndarray | None:
    """Return the bytes of a resource; None for one that stays, or whose size is not that of its type.

    Raises `UsageError` if it has no data.
    """
    tensor_type = ir.RankedTensorType(value.type)
    dtypes = _DTYPES.get(str(tensor_type.element_type))
    size = math.prod(tensor_type.shape) * dtypes[0].itemsize if dtypes else 0
    if not size:
        return None
    data = resource_bytes(value, size)
    if data is None and not has_data(value):
        raise missing_data(value)
    stays = size < _SMALLEST and "complex" not in str(tensor_type.element_type)  # LLVM has no complex resources
    return None if stays else data


@dataclass(frozen=True)
class TableEntry:
    """An entry of the table."""

    number: int
    """Of the resource."""
    shape: tuple[int, ...]
    itemsize: int
    order: tuple[int, ...] | None
    """The permutation of the axes of ``shape`` that the code reads; None for the weight as it is."""

    def buffer(self, data: np.ndarray) -> np.ndarray:
        """Return the array that the code reads, of the bytes ``data``: themselves where possible."""
        if self.order is not None:
            elements = data.view(np.dtype((np.void, self.itemsize))).reshape(self.shape)
            laid_out = elements.transpose(self.order)
            return laid_out if laid_out.flags.c_contiguous else _aligned_copy(laid_out)
        return data if data.ctypes.data % self.itemsize == 0 else data.copy()


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    """Return a copy in PyTorch's memory, which begins at a cache line: vectors across two take twice as long to read.

    NumPy aligns to 16 bytes.
    """
    memory: np.ndarray = torch.empty(array.nbytes, dtype=torch.uint8).numpy()
    copy = memory.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def hoist_weights(function: func_d.FuncOp) -> list[TableEntry]:
    """Turn the handles of `elide_weights` in ``function`` into buffers of a new last argument; return its entries.

    The weight is transposed for an operation that only transposes it, which is replaced, and for a contraction that
    reads along another axis than the last (`row_order`).
    """
    constants = resource_constants(function, "arith.constant")
    numbers = {value: handle.number for value in constants if (handle := _handle(value))}
    uses: dict[tuple[ir.Attribute, tuple[int, ...] | None, ir.Type], list[ir.OpOperand]] = {}
    for value in numbers:
        for use in [use for op in constants[value] for use in op.results[0].uses]:
            uses.setdefault((value, *_layout(use)), []).append(use)
    entries: list[TableEntry] = []
    replaced: list[ir.Operation] = []
    with function.context, function.location:
        buffer_type = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], ir.IntegerType.get_signless(8))
        table = append_argument(function, ir.MemRefType.get([len(uses)], buffer_type))
        emit = ArithOps(ir.InsertionPoint.at_block_begin(function.entry_block), function.location)
        for (value, order, result), readers in uses.items():
            kind = ir.RankedTensorType(value.type)
            itemsize = _DTYPES[str(kind.element_type)][0].itemsize
            buffer = emit.op("memref.load", [buffer_type], [table, emit.index(len(entries))]).result
            entries.append(TableEntry(numbers[value], tuple(kind.shape), itemsize, order))
            view = view_of_block(
                emit, buffer, 0, ir.MemRefType.get(ir.RankedTensorType(result).shape, kind.element_type)
            )
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
    return entries


def _layout(use: ir.OpOperand) -> tuple[tuple[int, ...] | None, ir.Type]:
    """Return the order of the axes of a weight that a reader wants, and the type of what it reads then."""
    order = transposed_axes(use.owner)
    if order is not None:
        return order, use.owner.results[0].type
    given = ir.RankedTensorType(use.owner.operands[use.operand_number].type)
    order = row_order(use.owner, use.operand_number)
    if order is None:
        return None, given
    sizes, unknown = [given.shape[axis] for axis in order], ir.Location.unknown(given.context)
    return order, ir.RankedTensorType.get(sizes, given.element_type, loc=unknown)


def weight_table(entries: Sequence[TableEntry], resources: Sequence[Resource]) -> tuple[torch.Tensor, list[np.ndarray]]:
    """Return the table of ``entries``, as descriptors, and the memory that it points to."""
    buffers = [each.buffer(resources[each.number].data) for each in entries]
    words = [word for each in buffers for word in describe(each.ctypes.data, [each.nbytes])]
    return torch.tensor(words, dtype=torch.int64), buffers
