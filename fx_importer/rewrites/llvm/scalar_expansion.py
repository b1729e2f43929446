"""Scalar operations that MLIR's conversions to libm and LLVM fail on, in terms of others."""

from __future__ import annotations

from collections.abc import Callable

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-expand-scalars")
def expand_scalars(module: ir.Operation) -> None:
    """Replace the operations of `_EXPANSIONS` in ``module``."""
    _ = module.context.dialects["llvm"]  # loads it
    for op in operations(module.operation, _EXPANSIONS):
        if (value := _EXPANSIONS[op.name](op, ArithOps.before(op))) is not None:
            replace(op, value)


@rewrite("fx-importer-move-bfloat16-bits")
def move_bits(module: ir.Operation) -> None:
    """Load and store bfloat16 as 16 bits, in the LLVM dialect.

    Without instructions for it, LLVM calls a runtime library for values of that type that live across blocks.
    """
    for op in operations(module.operation, ("llvm.load", "llvm.store")):
        emit = ArithOps.before(op)
        attributes = dict(op.attributes.items())
        if op.name == "llvm.load" and isinstance(op.results[0].type, ir.BF16Type):
            bits = emit.op("llvm.load", [emit.type("i16")], list(op.operands), attributes).result
            replace(op, emit.value("llvm.bitcast", op.results[0].type, bits))
        elif op.name == "llvm.store" and isinstance(op.operands[0].type, ir.BF16Type):
            op.operands[0] = emit.value("llvm.bitcast", "i16", op.operands[0])


def _truncf(op: ir.Operation, emit: ArithOps) -> ir.Value | None:
    """Truncate float64 to 16-bit floats through float32, as PyTorch does; x86 lacks an instruction for it."""
    (value,) = op.operands
    if not isinstance(value.type, ir.F64Type) or isinstance(op.results[0].type, ir.F32Type):
        return None
    return emit.value("arith.truncf", op.results[0].type, emit.value("arith.truncf", "f32", value))


def _select(op: ir.Operation, emit: ArithOps) -> ir.Value | None:
    """Select the bits of bfloat16: see `move_bits`."""
    condition, *values = op.operands
    kind = op.results[0].type
    if not isinstance(kind, ir.BF16Type):
        return None
    bits = (emit.value("arith.bitcast", "i16", value) for value in values)
    return emit.value("arith.bitcast", kind, emit.value("arith.select", "i16", condition, *bits))


def _to_float(op: ir.Operation, emit: ArithOps) -> ir.Value | None:
    """Convert integers to 16-bit floats through float32, as PyTorch does: LLVM compares 70000 and not infinity."""
    kind = op.results[0].type
    if not isinstance(kind, ir.F16Type | ir.BF16Type):
        return None
    return emit.value("arith.truncf", kind, emit.value(op.name, "f32", *op.operands))


def _absi(op: ir.Operation, emit: ArithOps) -> ir.Value:
    (value,) = op.operands
    negated = emit.value("arith.subi", value.type, emit.constant_integer(0, value.type), value)
    return emit.value("arith.maxsi", value.type, value, negated)


def _copysign(op: ir.Operation, emit: ArithOps) -> ir.Value:
    """Take all bits of the first operand but the sign bit, which comes from the second one."""
    bits = ir.FloatType(op.operands[0].type).width
    integer = emit.type(f"i{bits}")
    magnitude, sign = (emit.value("arith.bitcast", integer, operand) for operand in op.operands)
    magnitude = emit.value("arith.andi", integer, magnitude, emit.constant_integer(2 ** (bits - 1) - 1, integer))
    sign = emit.value("arith.andi", integer, sign, emit.constant_integer(-(2 ** (bits - 1)), integer))
    return emit.value("arith.bitcast", op.results[0].type, emit.value("arith.ori", integer, magnitude, sign))


def _count_leading_zeros(op: ir.Operation, emit: ArithOps) -> ir.Value:
    attributes = {"is_zero_poison": ir.BoolAttr.get(False, emit.context)}
    return emit.op("llvm.intr.ctlz", [op.results[0].type], list(op.operands), attributes).result


def _count_ones(op: ir.Operation, emit: ArithOps) -> ir.Value:
    return emit.value("llvm.intr.ctpop", op.results[0].type, *op.operands)


_EXPANSIONS: dict[str, Callable[[ir.Operation, ArithOps], ir.Value | None]] = {
    "arith.select": _select,
    "arith.sitofp": _to_float,
    "arith.truncf": _truncf,
    "arith.uitofp": _to_float,
    "math.absi": _absi,
    "math.copysign": _copysign,
    "math.ctlz": _count_leading_zeros,
    "math.ctpop": _count_ones,
}
