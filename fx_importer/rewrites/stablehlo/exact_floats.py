"""Run int8 matmuls and convolutions in float32, in StableHLO: see `exact_floats`.

Only the number of terms can prove a sum exact, since weights are arguments when XLA compiles.
"""

from __future__ import annotations

import math

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import attributes_of, producer
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.walk import rewrite

_EXACT = 1 << 24
"""float32 represents all integers up to this magnitude."""
_LARGEST, _LOW = 1 << 7, 15
"""The largest magnitudes of an int8, and of its low or its high four bits."""


@rewrite(
    "fx-importer-stablehlo-int8-matmuls-to-f32",
    ops=("stablehlo.convolution", "stablehlo.dot_general"),
    emitter=StablehloOps,
)
def stablehlo_int8_matmuls_to_f32(op: ir.Operation, emit: StablehloOps) -> None:
    """Compute int8 matmuls and convolutions with int32 results in float32 where that is exact."""
    left, right = (_narrow(value) for value in op.operands)
    terms = _terms(op)
    if left is None or right is None or not terms or StablehloOps.element(op.results[0]) != "i32":
        return
    if terms * _LARGEST * _LARGEST <= _EXACT:
        result = _product(emit, op, left, right)
    elif terms * _LARGEST * _LOW <= _EXACT:
        result = _by_halves(emit, op, left, right)
    else:
        return
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _narrow(value: ir.Value) -> ir.Value | None:
    """Return the int8 tensor that ``value`` is or is converted from; None if there is none."""
    source = value.owner.operands[0] if producer(value) == "stablehlo.convert" else value
    return source if StablehloOps.element(source) == "i8" else None


def _terms(op: ir.Operation) -> int:
    """Return the number of products summed per result element; 0 if a size is dynamic."""
    left, right = (StablehloOps.shape(value) for value in op.operands)
    if op.name == "stablehlo.dot_general":
        numbers = stablehlo_d.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        return math.prod(left[axis] or 0 for axis in numbers.lhs_contracting_dimensions)
    filters = stablehlo_d.ConvDimensionNumbers(op.attributes["dimension_numbers"]).kernel_output_feature_dimension
    return math.prod(size or 0 for axis, size in enumerate(right) if axis != filters)


def _by_halves(emit: StablehloOps, op: ir.Operation, left: ir.Value, right: ir.Value) -> ir.Value:
    """Emit 16 times the product with the high bits of ``right``, plus the product with its low bits."""
    four, low = (emit.dense_constant(str(number), right.type) for number in (4, _LOW))
    high = emit.stablehlo("shift_right_arithmetic", right.type, right, four)
    total = _product(emit, op, left, emit.stablehlo("and", right.type, right, low))
    sixteen = emit.dense_constant("16", total.type)
    scaled = emit.stablehlo("multiply", total.type, _product(emit, op, left, high), sixteen)
    return emit.stablehlo("add", total.type, scaled, total)


def _product(emit: StablehloOps, op: ir.Operation, left: ir.Value, right: ir.Value) -> ir.Value:
    """Emit ``op`` on int8 ``left`` and ``right`` in float32; return the result in int32."""
    floats = [emit.stablehlo("convert", emit.tensor(emit.shape(operand), "f32"), operand) for operand in (left, right)]
    result = emit.tensor(emit.shape(op.results[0]), "f32")
    product = emit.op(op.name, [result], floats, attributes_of(op)).result
    return emit.stablehlo("convert", op.results[0].type, product)
