"""Python values as ``torch.constant.*`` operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fx_importer.importing.types import DTYPE_CODES, LAYOUT_CODES, MEMORY_FORMAT_CODES
from fx_importer.importing.unsupported import UnsupportedNodeError
from fx_importer.mlir.bindings import ir

if TYPE_CHECKING:
    from fx_importer.importing.node_builder import NodeBuilder


def constant_op(build: NodeBuilder, value: Any) -> ir.Value:
    """Append the constant ``value`` and return it. Dtypes, layouts and memory formats are c10's enum values.

    Raises:
        UnsupportedNodeError: for a value of a type that `NodeBuilder.constant` does not list.
    """
    context = build.fx_importer.context
    if value is None:
        return _append(build, "none", "!torch.none", None)
    if isinstance(value, bool):
        return _append(build, "bool", "!torch.bool", ir.BoolAttr.get(value, context=context))
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise UnsupportedNodeError(f"the integer {value} does not fit into 64 bits")
        i64 = ir.IntegerType.get_signless(64, context=context)
        return _append(build, "int", "!torch.int", ir.IntegerAttr.get(i64, value))
    if isinstance(value, float):
        f64 = ir.F64Type.get(context=context)
        return _append(build, "float", "!torch.float", ir.FloatAttr.get(f64, value, loc=build.location))
    if isinstance(value, str):
        return _append(build, "str", "!torch.str", ir.StringAttr.get(value, context=context))
    if isinstance(value, torch.device):
        return _append(build, "device", "!torch.Device", ir.StringAttr.get(str(value), context=context))
    for codes in (DTYPE_CODES, LAYOUT_CODES, MEMORY_FORMAT_CODES):
        if (code := codes.get(value)) is not None:
            return build.constant(code)
    raise UnsupportedNodeError(
        f"a constant of type {type(value).__name__} ({value!r}) has no counterpart in the torch dialect"
    )


def _append(build: NodeBuilder, kind: str, type_: str, attribute: ir.Attribute | None) -> ir.Value:
    attributes = None if attribute is None else {"value": attribute}
    return build.op(f"torch.constant.{kind}", [build.types.parse(type_)], (), attributes).result
