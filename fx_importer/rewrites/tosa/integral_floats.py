"""Floats that are integral already, and need no rounding: casts to integers and ``round`` emit some around others."""

from __future__ import annotations

import math

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.tosa.intervals import element_bits
from fx_importer.rewrites.tosa.range_rules import LARGEST_FLOATS, constant_array

_ROUNDED = ("tosa.floor", "tosa.ceil")
_ARITHMETIC = ("tosa.add", "tosa.sub", "tosa.mul", "tosa.maximum", "tosa.minimum", "tosa.abs", "tosa.negate")
"""Integral floats give integral floats: from 2^24 on, every float32 is one."""
_MOVES = ("identity", "reshape", "transpose", "tile", "slice", "reverse", "concat", "reduce_max", "reduce_min")
_FROM_OPERANDS = (*_ARITHMETIC, *(f"tosa.{name}" for name in _MOVES))
_READ = {"tosa.const", "tosa.cast", "tosa.clamp", "tosa.select", "tosa.gather", *_ROUNDED, *_FROM_OPERANDS}


@rewrite("fx-importer-fold-tosa-rounding")
def fold_tosa_rounding(module: ir.Operation) -> None:
    """Replace ``floor`` and ``ceil`` of integral floats by their operand, and ``select`` between equal values."""
    integral: set[ir.Value] = set()
    for op in operations(module, _READ):
        if op.name == "tosa.select":
            _, on_true, on_false = op.operands
            if on_true == on_false and on_true.type == op.results[0].type:
                replace(op, on_true)
                continue
        if element_bits(op.results[0]) is not None or not _is_integral(op, integral):
            continue
        if op.name in _ROUNDED and op.operands[0] in integral:
            replace(op, op.operands[0])
        else:
            integral.add(op.results[0])


def _is_integral(op: ir.Operation, integral: set[ir.Value]) -> bool:
    """Return whether the floats that ``op`` computes are integral, infinite or NaN."""
    operands = list(op.operands)
    match op.name:
        case "tosa.floor" | "tosa.ceil":
            return True
        case "tosa.const":
            if math.prod(ir.RankedTensorType(op.results[0].type).shape) > LARGEST_FLOATS:  # weights
                return False
            array = constant_array(op.attributes["values"])
            return array is not None and bool(np.all(array == np.floor(array)))
        case "tosa.cast":
            return element_bits(operands[0]) is not None or operands[0] in integral
        case "tosa.clamp":
            bounds = (ir.FloatAttr(op.attributes[name]).value for name in ("min_val", "max_val"))
            return operands[0] in integral and all(bound.is_integer() for bound in bounds)
        case "tosa.select":
            return integral.issuperset(operands[1:])
        case "tosa.gather":
            return operands[0] in integral
        case "tosa.reshape" | "tosa.tile" | "tosa.slice":
            return operands[0] in integral  # the others are shapes
        case "tosa.mul":
            return integral.issuperset(operands[:2])  # the last is the shift of integers
        case "tosa.negate":
            return operands[0] in integral  # the others are zero points
        case _:
            return integral.issuperset(operands)
