"""Constant folding of scalar arithmetic, floats included: StableHLO's shape refinement folds only integers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, replace
from fx_importer.mlir.emit.stablehlo import StablehloOps

_DTYPES = {"f64": np.float64, "f32": np.float32, "i64": np.int64, "i32": np.int32, "i1": np.bool_}


def _truncated_quotient(a: int, b: int) -> float:
    """Return the quotient of integers, truncated; NaN, which is not folded, for a division by zero."""
    return math.nan if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


_FOLDS: Mapping[str, Callable[..., Any]] = {
    "stablehlo.convert": lambda x: x,
    "stablehlo.reshape": lambda x: x,
    "stablehlo.add": operator.add,
    "stablehlo.subtract": operator.sub,
    "stablehlo.multiply": operator.mul,
    "stablehlo.divide": lambda a, b: a / b if isinstance(a, np.floating) else _truncated_quotient(int(a), int(b)),
    "stablehlo.maximum": max,
    "stablehlo.minimum": min,
    "stablehlo.abs": abs,
    "stablehlo.negate": operator.neg,
    "stablehlo.floor": np.floor,
    "stablehlo.ceil": np.ceil,
    "stablehlo.round_nearest_even": np.rint,
    "stablehlo.select": lambda condition, a, b: a if condition else b,
}
_COMPARISONS = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


def fold_scalars(block: ir.Block) -> bool:
    """Fold operations on constant single-element tensors in ``block``; return whether there was one."""
    folded = False
    for op in list(block.operations):
        operation = op.operation
        fold = _fold_function(operation)
        if fold is None or len(operation.results) != 1 or (dtype := _dtype_of(operation.results[0])) is None:
            continue
        operands = [_constant_value(operand) for operand in operation.operands]
        if any(operand is None or not np.isfinite(operand) for operand in operands):
            continue
        with np.errstate(all="ignore"):
            number = fold(*operands)
        if not np.isfinite(number):
            continue
        _replace_by_constant(operation, dtype(number))
        folded = True
    return folded


def _fold_function(op: ir.Operation) -> Callable[..., Any] | None:
    if op.name == "stablehlo.compare":
        return _COMPARISONS.get(str(op.attributes["comparison_direction"]).split()[-1].rstrip(">"))
    return _FOLDS.get(op.name)


def _dtype_of(value: ir.Value) -> Any:
    """Return the NumPy dtype of a single-element tensor; None for other values and unsupported dtypes."""
    type_ = value.type
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape or math.prod(type_.shape) != 1:
        return None
    return _DTYPES.get(str(type_.element_type))


def _constant_value(value: ir.Value) -> Any:
    dtype = _dtype_of(value)
    if dtype is None or producer(value) != "stablehlo.constant":
        return None
    return dtype(ir.DenseElementsAttr(value.owner.attributes["value"]).get_splat_value().value)


def _replace_by_constant(op: ir.Operation, number: Any) -> None:
    type_ = ir.RankedTensorType(op.results[0].type)
    element = type_.element_type
    if isinstance(number, np.floating):
        one: ir.Attribute = ir.FloatAttr.get(element, float(number), loc=op.location)
    else:
        one = ir.IntegerAttr.get(element, int(number))
    replace(op, StablehloOps.before(op).const(ir.DenseElementsAttr.get_splat(type_, one)))
