"""Hoisting of large constants out of LLVM into one block of memory, passed as an argument; and of weights as arguments.

400 MB of weights would take LLVM 8 s and 1.2 GB; here they take one copy.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from fx_importer.errors import UsageError
from fx_importer.execution.loop_interchange import permute_operand_map, row_order
from fx_importer.execution.memref import DTYPES
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit import update_function_type
from fx_importer.mlir.emit_arith import ArithOps
from fx_importer.mlir.resources import has_data, key_of, resource_bytes, resource_of
from fx_importer.mlir.walk import operations

_SMALLEST = 1024
"""In bytes. Smaller constants are not hoisted: LLVM may fold them."""
_ALIGNMENT = 64
_ELEMENT_DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""A dtype for copies of elements, by their size in bytes."""


def hoist_constants(function: func_d.FuncOp) -> torch.Tensor:
    """Move the large ``dense_resource`` constants of ``function`` into a new last argument; return its value.

    The argument is a buffer of bytes; each constant becomes a read-only view of it. For a contraction that reads along
    another axis than the last (`row_order`), the copy is transposed.
    """
    constants = _resource_constants(function, "arith.constant")
    contents = {value: data for value in constants if (data := _bytes_of(value)) is not None}
    uses: dict[tuple[ir.Attribute, tuple[int, ...] | None], list[ir.OpOperand]] = {}
    for value in contents:
        for use in [use for op in constants[value] for use in op.results[0].uses]:
            uses.setdefault((value, row_order(use.owner, use.operand_number)), []).append(use)
    sizes = [-(-len(contents[value]) // _ALIGNMENT) * _ALIGNMENT for value, _ in uses]
    block = torch.empty(sum(sizes), dtype=torch.uint8)
    with function.context, function.location:
        argument = append_argument(function, ir.MemRefType.get([block.numel()], ir.IntegerType.get_signless(8)))
        emit = ArithOps(ir.InsertionPoint.at_block_begin(function.entry_block), function.location)
        start = 0
        for size, ((value, order), readers) in zip(sizes, uses.items(), strict=True):
            kind = ir.RankedTensorType(value.type)
            data = contents[value]
            ctypes.memmove(block.data_ptr() + start, data.ctypes.data, len(data))
            if order is not None:
                _permute(block[start : start + len(data)], kind.shape, order)
                kind = ir.RankedTensorType.get([kind.shape[axis] for axis in order], kind.element_type)
            tensor = _view(emit, argument, start, kind)
            for use in readers:
                if order is not None:
                    permute_operand_map(use.owner, use.operand_number, order)
                use.owner.operands[use.operand_number] = tensor
            start += size
        # After all insertions: the views are inserted before one of these operations.
        for value in contents:
            for op in constants[value]:
                op.erase()
    return block


def _permute(data: torch.Tensor, shape: Sequence[int], order: Sequence[int]) -> None:
    """Permute the axes of the array of ``shape`` with the bytes ``data``, in place."""
    elements = data.view(_ELEMENT_DTYPES[data.numel() // math.prod(shape)])
    elements.copy_(elements.view(*shape).permute(*order).reshape(-1))


def _bytes_of(value: ir.Attribute) -> np.ndarray | None:
    """Return the bytes of a resource; None for one that is not hoisted, or whose size is not that of its type.

    Raises `UsageError` if it has no data.
    """
    tensor_type = ir.RankedTensorType(value.type)
    dtypes = DTYPES.get(str(tensor_type.element_type))
    size = math.prod(tensor_type.shape) * dtypes[0].itemsize if dtypes else 0
    if not size:
        return None
    data = resource_bytes(value, size)
    if data is None and not has_data(value):
        raise missing_data(value)
    stays = size < _SMALLEST and "complex" not in str(tensor_type.element_type)  # LLVM has no complex resources
    return None if stays else data


def append_argument(function: func_d.FuncOp, argument_type: ir.Type) -> ir.Value:
    """Return a new last argument of ``function``."""
    argument = function.entry_block.add_argument(argument_type, function.location)
    update_function_type(function)
    if "arg_attrs" in function.attributes:
        given = list(ir.ArrayAttr(function.attributes["arg_attrs"]))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([*given, ir.DictAttr.get({})])
    return argument


def _view(emit: ArithOps, block: ir.Value, start: int, tensor_type: ir.RankedTensorType) -> ir.Value:
    view = view_of_block(emit, block, start, ir.MemRefType.get(tensor_type.shape, tensor_type.element_type))
    restrict = {"restrict": ir.UnitAttr.get(emit.context)}  # without ``writable``: bufferization never writes to it
    return emit.op("bufferization.to_tensor", [tensor_type], [view], restrict).result


DISJOINT = "fx_importer.disjoint"
"""The attribute of views that share no memory with others, as long as both are in use."""


def view_of_block(emit: ArithOps, block: ir.Value, start: int, buffer_type: ir.MemRefType) -> ir.Value:
    """Return the buffer that begins ``start`` bytes after the beginning of ``block``, and overlaps no other."""
    attributes = {DISJOINT: ir.UnitAttr.get(emit.context)}
    return emit.op("memref.view", [buffer_type], [block, emit.index(start)], attributes).result


def take_resources(
    function: func_d.FuncOp, operation: str, dtypes: Mapping[str, tuple[torch.dtype, ...]]
) -> list[torch.Tensor]:
    """Turn each ``dense_resource`` of the constants named ``operation`` into a new last argument; return their values.

    For runtimes that do not read resources. ``dtypes`` maps element types to torch dtypes.

    Raises:
        UsageError: for a resource without data.
    """
    tensors: list[torch.Tensor] = []
    for value in name_resources(function, operation):
        kind = ir.RankedTensorType(value.type)
        tensor = torch.empty(kind.shape, dtype=dtypes[str(kind.element_type)][0])
        if (data := resource_bytes(value, tensor.nbytes)) is None:
            raise missing_data(value)
        ctypes.memmove(tensor.data_ptr(), data.ctypes.data, len(data))
        tensors.append(tensor)
    return tensors


def missing_data(value: ir.Attribute) -> UsageError:
    """Return the error for a resource without data."""
    return UsageError(
        f"the weight '{key_of(value)}' is elided from the module: add it with fx_importer.link, or run the module with "
        "Lowered.run or Lowered.caller"
    )


def name_resources(function: func_d.FuncOp, operation: str) -> list[ir.Attribute]:
    """Turn each ``dense_resource`` of constants named ``operation`` into a new last argument; return the resources."""
    constants = _resource_constants(function, operation)
    with function.context, function.location:
        for value, ops in constants.items():
            argument = append_argument(function, value.type)
            for op in ops:
                op.results[0].replace_all_uses_with(argument)
                op.erase()
    return list(constants)


def _resource_constants(function: func_d.FuncOp, operation: str) -> dict[ir.Attribute, list[ir.Operation]]:
    """Return the operations named ``operation`` in ``function`` that have a ``dense_resource``, by the resource."""
    found: dict[ir.Attribute, list[ir.Operation]] = {}
    for op in operations(function.operation, (operation,)):
        if (value := resource_of(op)) is not None:
            found.setdefault(value, []).append(op)
    return found
