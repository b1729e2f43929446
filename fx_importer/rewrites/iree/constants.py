"""Constants that IREE does not compile, or compiles wrongly: bfloat16 ones as resources, i48, i64 in 32 bits."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.resources import byte_size, is_resource, key_of, replace_constants, resource_bytes, resources_in
from fx_importer.mlir.walk import operations, rewrite

_INLINED = 256
"""IREE copies constants of so many bytes, at most, into kernels."""


@rewrite("fx-importer-inline-bf16-constants")
def inline_bf16_constants(module: ir.Operation) -> None:
    """Replace the resources of small bfloat16 constants with elements in the module.

    IREE 3.13 stores bfloat16 as integers in kernels, and leaves the type of a resource there, which does not compile.
    """
    replace_constants(resources_in(module), _with_elements)


def _with_elements(value: ir.Attribute) -> ir.Attribute | None:
    kind = ir.RankedTensorType(value.type)
    if str(kind.element_type) != "bf16" or not 0 < byte_size(value) <= _INLINED:
        return None
    data = resource_bytes(value, byte_size(value))
    return None if data is None else ir.Attribute.parse(f'dense<"0x{data.tobytes().hex()}"> : {kind}', kind.context)


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


_BYTES = 6
_LOW_BITS = 24


@rewrite("fx-importer-extend-i48-constants", ops=("tosa.const",), emitter=LinalgOps)
def extend_i48_constants(op: ir.Operation, emit: LinalgOps) -> None:
    """Compute i48 constants with negative elements from i32 constants, whose sign IREE extends.

    IREE 3.13 stores i48 in 64 bits and fills the upper 16 bits of a constant with zeros. An element is
    ``high * 2 ** 24 + low``.
    """
    type_ = op.results[0].type
    if emit.element(type_) != "i48":
        return
    shape = [size or 0 for size in emit.shape(type_)]
    elements = _elements(op.attributes["values"])
    if all(element >= 0 for element in elements):
        return

    def constant(values: Sequence[int]) -> ir.Value:
        half = ir.DenseElementsAttr.get(np.array(list(values) * count, np.int32).reshape(shape), context=emit.context)
        return emit.op("arith.constant", [half.type], [], {"value": half}).result

    def combined(inside: LinalgOps, halves: Sequence[ir.Value]) -> Sequence[ir.Value]:
        high, low = (inside.value("arith.extsi", "i48", half) for half in halves[:2])
        factor = inside.constant_integer(2**_LOW_BITS, inside.type("i48"))
        return [inside.value("arith.addi", "i48", inside.value("arith.muli", "i48", high, factor), low)]

    count = math.prod(shape) // max(len(elements), 1)  # a splat has one element
    low = [element % 2**_LOW_BITS for element in elements]
    halves = [constant([element >> _LOW_BITS for element in elements]), constant(low)]
    (sums,) = emit.elementwise(halves, [emit.empty(shape, emit.type("i48"))], combined)
    replace(op, sums)


def _elements(values: ir.Attribute) -> list[int]:
    """Return the elements of a ``dense`` attribute of i48, which the bindings do not read; one of a splat."""
    text = str(values).partition("<")[2].rpartition(" : ")[0]
    if text.startswith('"0x'):
        data = bytes.fromhex(text.removeprefix('"0x').rstrip('">'))
        return [int.from_bytes(data[at : at + _BYTES], "little", signed=True) for at in range(0, len(data), _BYTES)]
    return [int(number) for number in re.findall(r"-?\d+", text)]
