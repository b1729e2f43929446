"""Weights that code reads: a table of buffers that alias the memory of the module's resources."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fx_importer.calls.memref import describe
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.constant_arguments import missing_data
from fx_importer.mlir.dtypes import DTYPES, UNSIGNED
from fx_importer.mlir.elided_weights import HandleScope, WeightHandle
from fx_importer.mlir.emit.emitter import Emitter
from fx_importer.mlir.resources import has_data, key_of, resource, resource_bytes, resource_of
from fx_importer.mlir.walk import operations
from fx_importer.rewrites.llvm.weight_hoisting import HoistedWeight, handle_of

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


def elide_weights(module: ir.Module, is_weight: Callable[[np.ndarray], bool] | None = None) -> list[Resource]:
    """Replace the large resources of constants in ``module`` by handles, whose numbers are their positions here.

    With ``is_weight``, small ones for whose bytes it is true are replaced too.

    Raises:
        UsageError: if one has no data.
    """
    for op in operations(module.operation, ("stablehlo.constant",)):
        _without_sign(op)
    weights: list[Resource] = []
    handles: dict[ir.Attribute, ir.Attribute] = {}
    for op in operations(module.operation, _CONSTANTS):
        name = _CONSTANTS[op.name]
        value = resource_of(op, name)
        if value is None:
            continue
        if value not in handles:
            data = _bytes_of(value, is_weight)
            handles[value] = value
            if data is not None:
                handles[value] = WeightHandle(HandleScope.LOAD, len(weights)).attribute(value.type)
                weights.append(Resource(value, data))
        op.attributes[name] = handles[value]
    return weights


def _without_sign(op: ir.Operation) -> None:
    """Give a resource of unsigned integers a signless type: StableHLO's lowering converts the type of results only."""
    value, type_ = resource_of(op), op.results[0].type
    if value is None or not (element := str(ir.RankedTensorType(type_).element_type)).startswith("ui"):
        return
    data = resource_bytes(value, math.prod(ir.RankedTensorType(type_).shape) * _DTYPES[element][0].itemsize)
    if data is None:
        return
    emit = Emitter.before(op)
    signless = emit.type(str(type_).replace(element, element[1:]))
    constant = emit.op("stablehlo.constant", [signless], (), {"value": resource(data, key_of(value), signless)})
    op.results[0].replace_all_uses_with(emit.value("stablehlo.bitcast_convert", type_, constant.result))
    op.erase()


def link_weights(module: ir.Module, resources: Sequence[Resource]) -> bool:
    """Undo `elide_weights` in a ``module`` of linalg, and return whether it had a handle."""
    handles = {op: handle for op in operations(module.operation, _CONSTANTS) if (handle := handle_of(resource_of(op)))}
    for op, handle in handles.items():
        op.attributes["value"] = resources[handle.number].value
    return bool(handles)


def _bytes_of(value: ir.Attribute, is_weight: Callable[[np.ndarray], bool] | None) -> np.ndarray | None:
    """Return the bytes of a resource; None for one that stays, or whose size does not match its type.

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
    return None if stays and not (data is not None and is_weight is not None and is_weight(data)) else data


def read_buffer(weight: HoistedWeight, data: np.ndarray) -> np.ndarray:
    """Return the array that code reads for ``weight``, of the bytes ``data``: themselves where possible."""
    if weight.order is not None:
        elements = data.view(np.dtype((np.void, weight.itemsize))).reshape(weight.shape)
        laid_out = elements.transpose(weight.order)
        return laid_out if laid_out.flags.c_contiguous else _aligned_copy(laid_out)
    return data if data.ctypes.data % weight.itemsize == 0 else data.copy()


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    """Return a copy in PyTorch's memory, which begins at a cache line: vectors across two take twice as long to read.

    NumPy aligns to 16 bytes.
    """
    memory: np.ndarray = torch.empty(array.nbytes, dtype=torch.uint8).numpy()
    copy = memory.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def weight_table(
    entries: Sequence[HoistedWeight], resources: Sequence[Resource]
) -> tuple[torch.Tensor, list[np.ndarray]]:
    """Return the table of ``entries``, as descriptors, and the memory that it points to."""
    buffers = [read_buffer(entry, resources[entry.number].data) for entry in entries]
    words = [word for buffer in buffers for word in describe(buffer.ctypes.data, [buffer.nbytes])]
    return torch.tensor(words, dtype=torch.int64), buffers
