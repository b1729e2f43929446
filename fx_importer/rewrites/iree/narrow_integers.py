"""Constants of 64-bit integers for devices that compute in 32 bits: IREE drops their upper bits without an error."""

from __future__ import annotations

import re

import numpy as np

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.resources import byte_size, is_resource, key_of, resource_bytes
from fx_importer.mlir.walk import operations, rewrite

_CONSTANTS = {
    **dict.fromkeys(("arith.constant", "stablehlo.constant", "torch.constant.int", "torch.vtensor.literal"), "value"),
    "tosa.const": "values",
}
"""The operations of constants, and the attribute that is the constant."""
_WIDE = re.compile(r"(.*[<x,])?[su]?i64>?")
_FROM_AN_EXTREME = re.compile(r"(torch\.aten|tosa)\.(reduce_|a|arg|cum)?(max|min)(\.dim)?")
_LIMITS, _NARROW = np.iinfo(np.int64), np.iinfo(np.int32)


@rewrite("fx-importer-narrow-i64-constants")
def narrow_i64_constants(module: ir.Operation) -> None:
    """Make the int64 constants of ``module`` such that 32 bits hold them.

    The least and the largest int64, from which reductions start, become the int32 limits. The elements of
    resources are written into the module: IREE narrows the type of a resource, and not its bytes.

    Raises:
        UsageError: for other constants beyond 32 bits, external weights of int64, and reductions in the torch dialect
            and TOSA that IREE starts from the least or the largest int64.
    """

    with module.context:
        for op in operations(module):
            if _FROM_AN_EXTREME.fullmatch(op.name) and _is_wide(op.operands[0].type):
                raise UsageError(
                    f"the device computes in 32 bits, in which IREE starts the int64 reduction {op.name} from a wrong "
                    "number: use output_type='linalg-on-tensors'"
                )
            name = _CONSTANTS.get(op.name)
            if name is not None and _is_wide((value := op.attributes[name]).type):
                with op.location:
                    op.attributes[name] = _narrowed(value)


def _is_wide(type_: ir.Type) -> bool:
    return _WIDE.fullmatch(str(type_)) is not None


def _narrowed(value: ir.Attribute) -> ir.Attribute:
    if isinstance(value, ir.IntegerAttr):
        (number,) = _in_32_bits(np.array([value.value]), str(value))
        return value if number == value.value else ir.IntegerAttr.get(value.type, int(number))
    if not is_resource(value):
        numbers = np.array(ir.DenseIntElementsAttr(value))
        return ir.DenseElementsAttr.get(_in_32_bits(numbers, str(value)[:60]), type=value.type)
    if (data := resource_bytes(value, byte_size(value))) is None:
        raise UsageError(
            f"the device computes in 32 bits, and '{key_of(value)}' is an external int64 weight: lower with "
            "weights='inline'"
        )
    numbers = data.view(np.int64).reshape(ir.ShapedType(value.type).shape)
    return ir.DenseElementsAttr.get(_in_32_bits(numbers, key_of(value)), type=value.type)


def _in_32_bits(numbers: np.ndarray, name: str) -> np.ndarray:
    narrow = np.where(numbers == _LIMITS.min, _NARROW.min, np.where(numbers == _LIMITS.max, _NARROW.max, numbers))
    if narrow.size and (narrow.min() < _NARROW.min or narrow.max() > _NARROW.max):
        raise UsageError(f"the device computes in 32 bits, and the constant '{name}' has values beyond")
    return narrow
