"""Products of 16-bit operands for the matrix units of GPUs, where the program computes them in float32.

Attention in bfloat16 and float16 is computed in float32, from which XLA does not find back: it multiplies in float32,
at a fifteenth of the speed.
"""

from __future__ import annotations

from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import attributes_of, producer
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.stablehlo.dimension_sizes import integer_array

_NARROW = ("bf16", "f16")
_LAYOUTS = ("stablehlo.transpose", "stablehlo.reshape", "stablehlo.broadcast_in_dim")
_MAX_FACTOR = 2.0**16
"""Factors beyond this, or below its reciprocal, stay: a sum of bfloat16 products without them may overflow."""


@dataclass(frozen=True)
class _Widened:
    """An operand that is a 16-bit tensor in float32, perhaps times a number."""

    element: str
    factor: ir.Attribute | None


@rewrite("fx-importer-narrow-products", ops=("stablehlo.dot_general",), emitter=StablehloOps)
def narrow_products(op: ir.Operation, emit: StablehloOps) -> None:
    """Multiply 16-bit operands as they are and add in float32, where a product has them widened to float32.

    That is the same number: products of two such elements are exact in float32. A factor of an operand that is near 1
    becomes one of the result. The weights of attention are rounded to the 16 bits of the values that they weigh, as
    PyTorch's kernels do, if the result is rounded to them too.
    """
    if StablehloOps.element(op.results[0]) != "f32" or None in StablehloOps.shape(op.results[0]):
        return
    left, right = (_widened(value) for value in op.operands)
    narrow = left or right
    if narrow is None or (left and right and left.element != right.element):
        return
    if not (left and right):
        wide = op.operands[0] if left is None else op.operands[1]
        if not _is_softmax(wide) or not _is_rounded(op.results[0], narrow.element):
            return
    operands = [_narrowed(emit, value, narrow.element) for value in op.operands]
    result = emit.op(op.name, [op.results[0].type], operands, attributes_of(op)).result
    for factor in (operand.factor for operand in (left, right) if operand is not None):
        if factor is not None:
            scale = emit.const(ir.DenseElementsAttr.get_splat(result.type, factor))
            result = emit.stablehlo("multiply", result.type, result, scale)
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _widened(value: ir.Value) -> _Widened | None:
    name = producer(value)
    if name == "stablehlo.convert":
        element = StablehloOps.element(value.owner.operands[0])
        return _Widened(element, None) if element in _NARROW else None
    if name in _LAYOUTS:
        return _widened(value.owner.operands[0])
    if name == "stablehlo.multiply":
        for at, factor in enumerate(map(_splat, value.owner.operands)):
            if factor is None or not 1 / _MAX_FACTOR <= abs(factor.value) <= _MAX_FACTOR:
                continue
            inner = _widened(value.owner.operands[1 - at])
            if inner is not None and inner.factor is None:
                return _Widened(inner.element, factor)
    return None


def _narrowed(emit: StablehloOps, value: ir.Value, element: str) -> ir.Value:
    """Return ``value`` in ``element``: what it was widened from, without its factor, or rounded."""
    if _widened(value) is None:
        return emit.stablehlo("convert", emit.tensor(emit.shape(value), element), value)
    op = value.owner
    if op.name == "stablehlo.convert":
        return op.operands[0]
    if op.name == "stablehlo.multiply":
        return _narrowed(emit, next(operand for operand in op.operands if _widened(operand) is not None), element)
    inner = _narrowed(emit, op.operands[0], element)
    return emit.op(op.name, [emit.tensor(emit.shape(value), element)], [inner], attributes_of(op)).result


def _splat(value: ir.Value) -> ir.FloatAttr | ir.IntegerAttr | None:
    """Return the number in all elements of a constant; None for other values."""
    if producer(value) in _LAYOUTS:
        return _splat(value.owner.operands[0])
    if producer(value) != "stablehlo.constant":
        return None
    constant = value.owner.attributes["value"]
    return constant.get_splat_value() if isinstance(constant, ir.DenseElementsAttr) and constant.is_splat else None


def _is_softmax(value: ir.Value) -> bool:
    """Return whether ``value`` is a quotient of exponentials and their sums, perhaps with zeros in masked rows."""
    name = producer(value)
    if name in _LAYOUTS:
        return _is_softmax(value.owner.operands[0])
    if name == "stablehlo.select":
        numbers = [_splat(operand) for operand in value.owner.operands[1:]]
        zeros = any(number is not None and number.value == 0 for number in numbers)
        return zeros and any(_is_softmax(operand) for operand in value.owner.operands[1:])
    return name == "stablehlo.divide" and _is_sum_of(value.owner.operands[1], value.owner.operands[0])


def _is_sum_of(total: ir.Value, exponential: ir.Value) -> bool:
    """Return whether ``total`` is the sum of the elements of an ``exponential`` along an axis, repeated along it."""
    if producer(exponential) != "stablehlo.exponential" or producer(total) != "stablehlo.broadcast_in_dim":
        return False
    reduce = total.owner.operands[0].owner
    if producer(total.owner.operands[0]) != "stablehlo.reduce" or reduce.operands[0] != exponential:
        return False
    rest = set(range(ir.RankedTensorType(exponential.type).rank)) - set(integer_array(reduce, "dimensions"))
    is_sum = reduce.regions[0].blocks[0].operations[0].operation.name == "stablehlo.add"
    return is_sum and integer_array(total.owner, "broadcast_dimensions") == sorted(rest)


def _is_rounded(value: ir.Value, element: str) -> bool:
    """Return whether all that reads ``value`` rounds it to ``element``."""
    readers = [use.owner for use in value.uses]
    return bool(readers) and all(
        (op.name == "stablehlo.convert" and StablehloOps.element(op.results[0]) == element)
        or (op.name in _LAYOUTS and _is_rounded(op.results[0], element))
        for op in readers
    )
