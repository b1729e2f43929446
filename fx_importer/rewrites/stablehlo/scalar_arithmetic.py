"""Lower scalar ``arith`` and ``math`` operations to StableHLO on rank-0 tensors."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import CMPF, CMPI
from fx_importer.rewrites.stablehlo.integer_emitter import INTEGER, FunctionValues, IntegerEmitter
from fx_importer.symbolic.polynomials import Polynomial, constant


def lower(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> bool:
    """Lower ``op``; return whether StableHLO has an equivalent."""
    (result,) = op.results
    if isinstance(result.type, ir.RankedTensorType):
        return False
    if op.name == "arith.constant":
        _constant(values, op, emit)
        return True
    if all(operand in values.integers for operand in op.operands) and (known := _on_integers(values, op, emit)):
        values.integers[result] = known
        return True
    tensors = [values.tensor(operand, emit) for operand in op.operands]
    operands = [tensor for tensor in tensors if tensor is not None]
    if len(operands) < len(tensors) or (value := _on_tensors(op, operands, emit)) is None:
        return False
    values.set_scalar(result, value)
    return True


def _constant(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> None:
    value, (result,) = op.attributes["value"], op.results
    if isinstance(result.type, ir.IndexType) or str(result.type) == "i64":
        values.integers[result] = constant(ir.IntegerAttr(value).value)
        return
    kind = ir.RankedTensorType.get([], result.type, loc=op.location)
    values.set_scalar(result, emit.const(ir.DenseElementsAttr.get_splat(kind, value)))


_COMPUTED = {
    "arith.divsi": "divide",
    "arith.divui": "divide",
    "arith.maxsi": "maximum",
    "arith.minsi": "minimum",
    "arith.remsi": "remainder",
    "arith.remui": "remainder",
}
"""Operands of the unsigned ops are sizes, which are never negative."""


def _on_integers(values: FunctionValues, op: ir.Operation, emit: IntegerEmitter) -> Polynomial | None:
    kind = op.results[0].type
    if not isinstance(kind, ir.IndexType) and str(kind) != "i64":
        return None
    operands = [values.integers[operand] for operand in op.operands]
    match op.name, operands:
        case "arith.index_cast" | "arith.index_castui", (a,):
            return a
        case "arith.addi", (a, b):
            return a + b
        case "arith.subi", (a, b):
            return a - b
        case "arith.muli", (a, b):
            return a * b
        case "arith.floordivsi", (a, b):
            if (exact := a.divided(b)) is not None:
                return exact
            if values.atoms.is_size(a) and values.atoms.is_size(b):
                return values.atoms.computed("divide", a, b)
        case (name, (a, b)) if name in _COMPUTED:
            return values.atoms.computed(_COMPUTED[name], a, b)
        case _:
            pass
    return None


_STABLEHLO_NAMES = {
    "arith.addf": "add",
    "arith.addi": "add",
    "arith.andi": "and",
    "arith.divf": "divide",
    "arith.divsi": "divide",
    "arith.maximumf": "maximum",
    "arith.maxsi": "maximum",
    "arith.minimumf": "minimum",
    "arith.minsi": "minimum",
    "arith.mulf": "multiply",
    "arith.muli": "multiply",
    "arith.negf": "negate",
    "arith.ori": "or",
    "arith.remf": "remainder",
    "arith.remsi": "remainder",
    "arith.select": "select",
    "arith.shli": "shift_left",
    "arith.shrsi": "shift_right_arithmetic",
    "arith.shrui": "shift_right_logical",
    "arith.subf": "subtract",
    "arith.subi": "subtract",
    "arith.xori": "xor",
    "math.absf": "abs",
    "math.absi": "abs",
    "math.ceil": "ceil",
    "math.cos": "cosine",
    "math.exp": "exponential",
    "math.floor": "floor",
    "math.log": "log",
    "math.log1p": "log_plus_one",
    "math.powf": "power",
    "math.roundeven": "round_nearest_even",
    "math.rsqrt": "rsqrt",
    "math.sin": "sine",
    "math.sqrt": "sqrt",
    "math.tan": "tan",
    "math.tanh": "tanh",
}
_CONVERT = ("arith.extf", "arith.truncf", "arith.sitofp", "arith.fptosi", "arith.extui", "arith.index_cast")
_INTEGER_DIRECTIONS = {CMPI[name]: name[-2:].upper() for name in ("eq", "ne", "slt", "sle", "sgt", "sge")}
_FLOAT_DIRECTIONS = {CMPF[name]: name[1:].upper() for name in ("oeq", "ogt", "oge", "olt", "ole", "une")}
"""StableHLO's comparison directions by predicate; its comparisons of floats are ordered, except ``NE``."""


def _on_tensors(op: ir.Operation, operands: list[ir.Value], emit: IntegerEmitter) -> ir.Value | None:
    kind = op.results[0].type
    result = INTEGER if isinstance(kind, ir.IndexType) else f"tensor<{kind}>"
    from_bool = bool(operands) and str(operands[0].type) == "tensor<i1>"
    if op.name in _STABLEHLO_NAMES:
        return emit.stablehlo(_STABLEHLO_NAMES[op.name], result, *operands)
    if op.name in _CONVERT and not (op.name == "arith.sitofp" and from_bool):
        return emit.stablehlo("convert", result, *operands)
    if op.name == "arith.uitofp" and from_bool:
        return emit.stablehlo("convert", result, *operands)
    if op.name in ("arith.extsi", "arith.trunci"):
        if from_bool:
            return emit.stablehlo("negate", result, emit.stablehlo("convert", result, *operands))
        if str(kind) != "i1":
            return emit.stablehlo("convert", result, *operands)
    if op.name == "arith.floordivsi":
        return _floor_divide(emit, *operands)
    if op.name in ("arith.cmpi", "arith.cmpf"):
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
        direction = (_INTEGER_DIRECTIONS if op.name == "arith.cmpi" else _FLOAT_DIRECTIONS).get(predicate)
        return emit.compare(direction, operands[0], operands[1]) if direction else None
    return None


def _floor_divide(emit: IntegerEmitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Emit the truncated quotient, minus 1 if there is a remainder whose sign differs from the divisor."""
    zero, one = emit.dense_constant("0", INTEGER), emit.dense_constant("1", INTEGER)
    quotient, rest = emit.stablehlo("divide", INTEGER, a, b), emit.stablehlo("remainder", INTEGER, a, b)
    differs = emit.compare("NE", emit.compare("LT", rest, zero), emit.compare("LT", b, zero))
    less = emit.stablehlo("and", "tensor<i1>", emit.compare("NE", rest, zero), differs)
    return emit.stablehlo("select", INTEGER, less, emit.stablehlo("subtract", INTEGER, quotient, one), quotient)
