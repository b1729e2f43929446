"""Expressions of C for operations on floats and complex numbers, and conversions to and from them."""

from __future__ import annotations

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.native.c_source.integers import Expression, Operands, storage_of, unsigned, wrapped
from fx_importer.native.c_source.scalars import BITS, FLOATS, c_type, paren, plain


def _infix(symbol: str) -> Expression:
    return lambda op, operands: f" {symbol} ".join(map(paren, operands))


def _bits_of(op: ir.Operation) -> int:
    return ir.FloatType(op.results[0].type).width


def _math(name: str) -> Expression:
    def emit(op: ir.Operation, operands: Operands) -> str:
        kind = str(op.results[0].type)
        if kind not in FLOATS:
            raise UsageError(f"C source has no {op.name} of {kind}: build a library or an object")
        return f"{name}{'f' if kind == 'f32' else ''}({', '.join(map(plain, operands))})"

    return emit


def _float_helper(name: str) -> Expression:
    return lambda op, operands: f"fx_{name}_{_bits_of(op)}({', '.join(map(plain, operands))})"


def _cmpf(op: ir.Operation, operands: Operands) -> str:
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    a, b = map(paren, operands)
    forms = (
        "false", f"{a} == {b}", f"{a} > {b}", f"{a} >= {b}", f"{a} < {b}", f"{a} <= {b}",
        f"{a} < {b} || {a} > {b}", f"{a} == {a} && {b} == {b}",
        f"!({a} < {b} || {a} > {b})", f"!({a} <= {b})", f"!({a} < {b})", f"!({a} >= {b})", f"!({a} > {b})",
        f"{a} != {b}", f"{a} != {a} || {b} != {b}", "true",
    )  # fmt: skip
    return forms[predicate]


def _sitofp(op: ir.Operation, operands: Operands) -> str:
    sign = "-" if str(op.operands[0].type) == "i1" else ""
    return f"{sign}({c_type(op.results[0].type)}){paren(operands[0])}"


def _uitofp(op: ir.Operation, operands: Operands) -> str:
    return f"({c_type(op.results[0].type)}){unsigned(op, operands)[0]}"


def _fptoi(sign: str) -> Expression:
    def emit(op: ir.Operation, operands: Operands) -> str:
        bits = ir.FloatType(op.operands[0].type).width
        if str(op.results[0].type) == "i1":
            return f"{paren(operands[0])} != 0"
        return wrapped(op, f"fx_f{bits}_to_{sign}{storage_of(op)}({plain(operands[0])})")

    return emit


def _float_cast(op: ir.Operation, operands: Operands) -> str:
    source, result = str(op.operands[0].type), str(op.results[0].type)
    text = plain(operands[0])
    if source in BITS:
        text = f"fx_{source}_to_f32({text})"
        return text if result == "f32" else f"({c_type(op.results[0].type)}){text}"
    if result in BITS:
        return f"fx_f32_to_{result}({text if source == 'f32' else f'(float){paren(text)}'})"
    return f"({c_type(op.results[0].type)}){paren(text)}"


def _bitcast(op: ir.Operation, operands: Operands) -> str:
    source, result = str(op.operands[0].type), str(op.results[0].type)
    if source in FLOATS and result not in FLOATS:
        return f"fx_{source}_to_bits({plain(operands[0])})"
    if result in FLOATS and source not in FLOATS:
        return f"fx_bits_to_{result}({plain(operands[0])})"
    return f"({c_type(op.results[0].type)}){paren(operands[0])}"


def _select(op: ir.Operation, operands: Operands) -> str:
    condition, left, right = map(paren, operands)
    text = f"{condition} ? {left} : {right}"
    kind = c_type(op.results[0].type)
    return f"({kind})({text})" if kind in ("int8_t", "int16_t", "uint16_t") else text


def _fpowi(op: ir.Operation, operands: Operands) -> str:
    kind = str(op.results[0].type)
    return f"pow{'f' if kind == 'f32' else ''}({plain(operands[0])}, ({FLOATS[kind]}){paren(operands[1])})"


def _rsqrt(op: ir.Operation, operands: Operands) -> str:
    return f"1 / {_math('sqrt')(op, operands)}"


_SAME_NAME = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf"),
    *("exp", "exp2", "expm1", "floor", "fma", "log", "log10", "log1p", "log2", "round", "sin", "sinh", "sqrt", "tan"),
    *("erfc", "tanh", "trunc"),
)
"""Operations of math that C has a function for, of the same name."""
LIBRARY = frozenset(
    (*_SAME_NAME, "fabs", "fmax", "fmin", "fmod", "pow", "signbit", "isnan", "isinf", "isfinite", "isnormal")
)
"""The names of libm that a source may call, without the ``f`` of those for float."""

FLOAT_EXPRESSIONS: dict[str, Expression] = {
    "arith.cmpf": _cmpf,
    "arith.sitofp": _sitofp,
    "arith.uitofp": _uitofp,
    "arith.fptosi": _fptoi("s"),
    "arith.fptoui": _fptoi("u"),
    "arith.extf": _float_cast,
    "arith.truncf": _float_cast,
    "arith.bitcast": _bitcast,
    "arith.select": _select,
    "arith.addf": _infix("+"),
    "arith.subf": _infix("-"),
    "arith.mulf": _infix("*"),
    "arith.divf": _infix("/"),
    "arith.negf": lambda _, operands: f"-{paren(operands[0])}",
    "arith.remf": _math("fmod"),
    "arith.maximumf": _float_helper("maximum"),
    "arith.minimumf": _float_helper("minimum"),
    "arith.maxnumf": _math("fmax"),
    "arith.minnumf": _math("fmin"),
    "math.fpowi": _fpowi,
    "math.rsqrt": _rsqrt,
    "math.absf": _math("fabs"),
    "math.powf": _math("pow"),
    "math.roundeven": _float_helper("round_even"),
    "math.isnan": lambda _, operands: f"isnan({plain(operands[0])}) != 0",
    "math.isinf": lambda _, operands: f"isinf({plain(operands[0])}) != 0",
    "math.isfinite": lambda _, operands: f"isfinite({plain(operands[0])}) != 0",
    "math.isnormal": lambda _, operands: f"isnormal({plain(operands[0])}) != 0",
    "complex.re": lambda _, operands: f"{paren(operands[0])}.re",
    "complex.im": lambda _, operands: f"{paren(operands[0])}.im",
    "complex.create": lambda op, operands: f"({c_type(op.results[0].type)}){{{', '.join(map(plain, operands))}}}",
    **{f"math.{name}": _math(name) for name in _SAME_NAME},
}
"""The expression of each operation with one result."""
