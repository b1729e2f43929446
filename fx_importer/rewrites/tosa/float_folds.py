"""Operations that TOSA's canonicalizer would fold wrongly for NaN, infinities or the sign of a zero."""

from __future__ import annotations

import math

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import producer
from fx_importer.mlir.emit_tosa import TosaOps
from fx_importer.mlir.walk import rewrite

_MOVED = ("tosa.reshape", "tosa.transpose", "tosa.tile", "tosa.cast", "tosa.identity", "tensor.cast")
"""Operations whose result is a splat of the same number."""
_INVERSES = {"tosa.exp": "tosa.log", "tosa.log": "tosa.exp"}
_NO_OPS = {"tosa.add": 1.0, "tosa.sub": -1.0}
"""The sign of the zero that does not leave all other operands as they are: -0 + 0 is 0."""


@rewrite("fx-importer-keep-tosa-floats", ops=("tosa.mul", "tosa.exp", "tosa.log", *_NO_OPS), emitter=TosaOps)
def keep_tosa_floats(op: ir.Operation, emit: TosaOps) -> None:
    """Put a ``tosa.identity`` before operands for which the operation would be folded, and should not be.

    The folders replace ``x * 0`` by 0 (NaN for infinities and NaN, and -0 for negative numbers), ``x + 0`` by x (0 for
    -0), ``exp(log(x))`` by x (NaN for negative numbers) and ``log(exp(x))`` by x (infinity for large ones).
    """
    if not _is_float(op.results[0]):
        return
    for position, operand in enumerate(op.operands):
        if _is_float(operand) and _would_fold(op, operand, position):
            op.operands[position] = emit.value("tosa.identity", operand.type, operand)


def _would_fold(op: ir.Operation, operand: ir.Value, position: int) -> bool:
    if op.name in _INVERSES:
        return producer(operand) == _INVERSES[op.name]
    zero = _splat(operand)
    if zero != 0:
        return False
    if op.name == "tosa.mul":
        other = _splat(op.operands[1 - position])
        return other is None or not 0 < other < math.inf
    return (op.name, position) != ("tosa.sub", 0) and math.copysign(1, zero) == _NO_OPS[op.name]


def _splat(value: ir.Value) -> float | None:
    """Return the number that all elements of a constant are; None if they differ, or the value is no constant."""
    name = producer(value)
    if name == "tosa.mul":
        factors = [_splat(each) for each in value.owner.operands[:2]]
        return math.prod(each for each in factors if each is not None) if None not in factors else None
    if name == "tosa.reciprocal":
        number = _splat(value.owner.operands[0])
        return None if number is None else 1 / number if number else math.copysign(math.inf, number)
    if name in _MOVED:
        return _splat(value.owner.operands[0]) if _is_float(value.owner.operands[0]) else None
    if name != "tosa.const":
        return None
    values = value.owner.attributes["values"]
    if not isinstance(values, ir.DenseElementsAttr) or not values.is_splat:
        return None
    return ir.FloatAttr(values.get_splat_value()).value


def _is_float(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and isinstance(value.type.element_type, ir.FloatType)
