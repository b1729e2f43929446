"""Operations that TOSA's canonicalizer would fold wrongly for NaN, infinities or the sign of a zero."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.walk import operations, rewrite

_MOVED = ("tosa.reshape", "tosa.transpose", "tosa.tile", "tosa.cast", "tosa.identity", "tensor.cast")
"""Operations whose result is a splat of the same number."""
_INVERSES = {"tosa.exp": "tosa.log", "tosa.log": "tosa.exp"}
_NO_OPS = {"tosa.add": 1.0, "tosa.sub": -1.0}
"""The sign of the zero that does not leave all other operands as they are: -0 + 0 is 0."""
_FOLDED = ("tosa.mul", *_INVERSES, *_NO_OPS)
_READ = {"tosa.const", "tosa.reciprocal", *_MOVED, *_FOLDED}


@rewrite("fx-importer-keep-tosa-floats")
def keep_tosa_floats(module: ir.Operation) -> None:
    """Put a ``tosa.identity`` before operands for which an operation would be folded, and should not be.

    The folders replace ``x * 0`` by 0 (NaN for infinities and NaN, and -0 for negative numbers), ``x + 0`` by x (0 for
    -0), ``exp(log(x))`` by x (NaN for negative numbers) and ``log(exp(x))`` by x (infinity for large ones).
    """
    splats: dict[ir.Value, float] = {}
    for op in operations(module, _READ):
        if not _is_float(op.results[0]):
            continue
        if (number := _splat(op, splats)) is not None:
            splats[op.results[0]] = number
        if op.name in _FOLDED:
            for position, operand in enumerate(op.operands):
                if _would_fold(op, position, splats):
                    op.operands[position] = TosaOps.before(op).value("tosa.identity", operand.type, operand)


def _would_fold(op: ir.Operation, position: int, splats: Mapping[ir.Value, float]) -> bool:
    operand = op.operands[position]
    if op.name in _INVERSES:
        return producer(operand) == _INVERSES[op.name]
    zero = splats.get(operand)
    if zero != 0:
        return False
    if op.name == "tosa.mul":
        other = splats.get(op.operands[1 - position])
        return other is None or not 0 < other < math.inf
    return (op.name, position) != ("tosa.sub", 0) and math.copysign(1, zero) == _NO_OPS[op.name]


def _splat(op: ir.Operation, splats: Mapping[ir.Value, float]) -> float | None:
    """Return the value of all elements of the result, from the values of earlier operations; None if unknown."""
    if op.name == "tosa.const":
        values = op.attributes["values"]
        is_splat = isinstance(values, ir.DenseElementsAttr) and values.is_splat
        return ir.FloatAttr(values.get_splat_value()).value if is_splat else None
    number = splats.get(op.operands[0])
    if number is None or op.name in _MOVED:
        return number
    if op.name == "tosa.reciprocal":
        return 1 / number if number else math.copysign(math.inf, number)
    if op.name == "tosa.mul":
        other = splats.get(op.operands[1])
        return None if other is None else number * other
    return None


def _is_float(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and isinstance(value.type.element_type, ir.FloatType)
