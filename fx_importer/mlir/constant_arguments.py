"""Weights as arguments of functions, for runtimes that do not read ``dense_resource`` attributes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import update_function_type
from fx_importer.mlir.resources import key_of, resource_bytes, resource_of
from fx_importer.mlir.walk import operations

if TYPE_CHECKING:
    import torch


def append_argument(function: func_d.FuncOp, argument_type: ir.Type) -> ir.Value:
    """Return a new last argument of ``function``."""
    argument = function.entry_block.add_argument(argument_type, function.location)
    update_function_type(function)
    if "arg_attrs" in function.attributes:
        attributes = list(ir.ArrayAttr(function.attributes["arg_attrs"]))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([*attributes, ir.DictAttr.get({})])
    return argument


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
        if (tensor := resource_tensor(value, dtypes)) is None:
            raise missing_data(value)
        tensors.append(tensor)
    return tensors


def resource_tensor(value: ir.Attribute, dtypes: Mapping[str, tuple[torch.dtype, ...]]) -> torch.Tensor | None:
    """Return a copy of a ``dense_resource``; None if it has no data."""
    import torch

    kind = ir.RankedTensorType(value.type)
    tensor = torch.empty(kind.shape, dtype=dtypes[str(kind.element_type)][0])
    if (data := resource_bytes(value, tensor.nbytes)) is None:
        return None
    ctypes.memmove(tensor.data_ptr(), data.ctypes.data, len(data))
    return tensor


def missing_data(value: ir.Attribute) -> UsageError:
    """Return the error for a resource without data."""
    return UsageError(
        f"the weight '{key_of(value)}' is elided from the module: add it with fx_importer.link, or run the module with "
        "Lowered.run or Lowered.caller"
    )


def name_resources(function: func_d.FuncOp, operation: str) -> list[ir.Attribute]:
    """Turn each ``dense_resource`` of constants named ``operation`` into a new last argument; return the resources."""
    constants = resource_constants(function, operation)
    with function.context, function.location:
        for value, ops in constants.items():
            argument = append_argument(function, value.type)
            for op in ops:
                op.results[0].replace_all_uses_with(argument)
                op.erase()
    return list(constants)


def resource_constants(function: func_d.FuncOp, operation: str) -> dict[ir.Attribute, list[ir.Operation]]:
    """Return the operations named ``operation`` in ``function`` that have a ``dense_resource``, by the resource."""
    by_value: dict[ir.Attribute, list[ir.Operation]] = {}
    for op in operations(function.operation, (operation,)):
        if (value := resource_of(op)) is not None:
            by_value.setdefault(value, []).append(op)
    return by_value
