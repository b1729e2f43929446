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

_NARROW = ("bf16", "f16")
_LAYOUTS = ("stablehlo.transpose", "stablehlo.reshape", "stablehlo.broadcast_in_dim")


@dataclass(frozen=True)
class _Widened:
    """An operand that is a 16-bit tensor in float32, perhaps times a number."""

    element: str
    factor: ir.Attribute | None


@rewrite("fx-importer-narrow-products", ops=("stablehlo.dot_general",), emitter=StablehloOps)
def narrow_products(op: ir.Operation, emit: StablehloOps) -> None:
    """Multiply 16-bit operands as they are and add in float32, where a product has them widened to float32.

    That is the same number: products of two such elements are exact in float32. A factor of an operand becomes one of
    the result. The weights of attention are rounded to the 16 bits of the values that they weigh, as PyTorch's kernels
    do, if the result is rounded to them too.
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
    for factor in (each.factor for each in (left, right) if each is not None):
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
            inner = _widened(value.owner.operands[1 - at]) if factor is not None else None
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
        return _narrowed(emit, next(each for each in op.operands if _widened(each) is not None), element)
    inner = _narrowed(emit, op.operands[0], element)
    return emit.op(op.name, [emit.tensor(emit.shape(value), element)], [inner], attributes_of(op)).result


def _splat(value: ir.Value) -> ir.Attribute | None:
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
        return any(_is_softmax(each) for each in value.owner.operands[1:]) and any(
            _splat(each) is not None for each in value.owner.operands[1:]
        )
    return name == "stablehlo.divide" and producer(value.owner.operands[0]) == "stablehlo.exponential"


def _is_rounded(value: ir.Value, element: str) -> bool:
    """Return whether all that reads ``value`` rounds it to ``element``."""
    readers = [use.owner for use in value.uses]
    return bool(readers) and all(
        (op.name == "stablehlo.convert" and StablehloOps.element(op.results[0]) == element)
        or (op.name in _LAYOUTS and _is_rounded(op.results[0], element))
        for op in readers
    )
