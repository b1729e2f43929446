"""Expressions of C for operations on integers, indices and booleans."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.native.c_source.scalars import c_type, paren, plain, storage, width_of

if TYPE_CHECKING:
    from fx_importer.native.c_source.functions import FunctionWriter

Operands = Sequence[str]
Expression = Callable[[ir.Operation, Operands], str]


def storage_of(op: ir.Operation) -> int:
    return storage(width_of(op.results[0].type))


def wrapped(op: ir.Operation, text: str) -> str:
    """Return an integer in the range of its type, which may have fewer bits than its storage."""
    width = width_of(op.results[0].type)
    if width in (8, 16, 32, 64):
        return text
    size = storage(width)
    left = f"(int{size}_t)((uint{size}_t){paren(text)} << {size - width})"
    return f"fx_sar_{size}({left}, {size - width})"


def is_index(op: ir.Operation) -> bool:
    return str(op.results[0].type) == "index"


def _arithmetic(name: str, symbol: str, of_bits: str) -> Expression:
    def emit(op: ir.Operation, operands: Operands) -> str:
        left, right = map(paren, operands)
        kind = str(op.results[0].type)
        if kind == "i1":
            return f"{left} {of_bits} {right}"
        if kind == "index":
            if _from_data(op):
                return f"(ptrdiff_t)((size_t){left} {symbol} (size_t){right})"
            return f"{left} {symbol} {right}"
        if kind in ("i8", "i16"):
            return f"(int{kind[1:]}_t)({left} {symbol} {right})"
        if symbol == "*" and _narrow_bits(op.operands[0]) + _narrow_bits(op.operands[1]) <= storage_of(op):
            return f"{left} * {right}"
        return wrapped(op, f"fx_{name}_{storage_of(op)}({plain(left)}, {plain(right)})")

    return emit


def _narrow_bits(value: ir.Value) -> int:
    """Return how many bits hold ``value``, from where it comes."""
    if not isinstance(value.owner, ir.Block):
        if value.owner.name == "arith.extsi":
            return max(width_of(value.owner.operands[0].type), 2)
        if value.owner.name == "arith.extui":
            return width_of(value.owner.operands[0].type) + 1
        if value.owner.name == "arith.constant":
            return ir.IntegerAttr(value.owner.attributes["value"]).value.bit_length() + 1
        if value.owner.name == "arith.subi":  # of a zero point
            return min(max(map(_narrow_bits, value.owner.operands)) + 1, width_of(value.type))
    return width_of(value.type)


_DATA = ("memref.load", "arith.index_cast", "arith.index_castui", "index.casts", "index.castu")


def _from_data(op: ir.Operation) -> bool:
    """Whether an index depends on elements of tensors, so that its arithmetic may overflow."""
    for value in op.operands:
        owner = value.owner
        if isinstance(owner, ir.Block):
            if not isinstance(owner.owner, ir.Operation) and value.owner.owner.name not in ("scf.for", "scf.parallel"):
                return True
        elif owner.name in _DATA or (
            owner.name.startswith(("arith.", "index.")) and owner.operands and _from_data(owner)
        ):
            return True
    return False


def _helper(name: str) -> Expression:
    def emit(op: ir.Operation, operands: Operands) -> str:
        if str(op.results[0].type) == "i1":
            return _of_bools(name, [paren(operand) for operand in operands])
        cast = "(ptrdiff_t)" if is_index(op) else ""
        return wrapped(op, f"{cast}fx_{name}_{storage_of(op)}({', '.join(map(plain, operands))})")

    return emit


def _of_bools(name: str, operands: Operands) -> str:
    """Return an operation on two booleans. As signed integers they are 0 and -1."""
    left, right, *_ = [*operands, ""]
    if name in ("max", "umin", "mul"):
        return f"{left} & {right}"
    if name in ("min", "umax"):
        return f"{left} | {right}"
    if name in ("udiv", "div"):
        return left
    if name in ("rem", "urem"):
        return "false"
    raise UsageError(f"C source has no {name} of booleans: build a library or an object")


def unsigned(op: ir.Operation, operands: Operands) -> list[str]:
    """Return operands of an integer type as unsigned numbers."""
    width = width_of(op.operands[0].type)
    if width == 1:
        return [paren(operand) for operand in operands]
    if str(op.operands[0].type) == "index":
        return [f"(size_t){paren(operand)}" for operand in operands]
    if width in (8, 16, 32, 64):
        return [f"(uint{width}_t){paren(operand)}" for operand in operands]
    mask = f"UINT64_C({(1 << width) - 1})"
    return [f"((uint64_t){paren(operand)} & {mask})" for operand in operands]


def _division(name: str, symbol: str, signed: bool) -> Expression:
    call = _helper(name)

    def emit(op: ir.Operation, operands: Operands) -> str:
        divisor = op.operands[1].owner
        known = isinstance(op.operands[1], ir.OpResult) and divisor.name in ("arith.constant", "index.constant")
        if known and str(op.results[0].type) != "i1" and ir.IntegerAttr(divisor.attributes["value"]).value > 0:
            if signed:
                text = f"{paren(operands[0])} {symbol} {paren(operands[1])}"
                return text if storage_of(op) >= 32 else f"(int{storage_of(op)}_t)({text})"
            if is_index(op) and not _from_data(op):
                return f"{paren(operands[0])} {symbol} {paren(operands[1])}"
        if name.startswith("u") and width_of(op.results[0].type) not in (1, 8, 16, 32, 64):
            left, right = unsigned(op, operands)
            return f"(int{storage_of(op)}_t)({left} {symbol} {right})"
        return call(op, operands)

    return emit


def _shift(name: str) -> Expression:
    call = _helper(name)

    def emit(op: ir.Operation, operands: Operands) -> str:
        width = width_of(op.results[0].type)
        if name == "shr" and width not in (1, 8, 16, 32, 64):
            return f"(int{storage(width)}_t)({unsigned(op, operands)[0]} >> {paren(operands[1])})"
        return call(op, operands)

    return emit


def _bitwise(symbol: str) -> Expression:
    def emit(op: ir.Operation, operands: Operands) -> str:
        left, right = map(paren, operands)
        kind = c_type(op.results[0].type)
        if kind == "bool":
            return f"{left} {'!=' if symbol == '^' else symbol} {right}"
        text = f"{left} {symbol} {right}"
        return f"({kind})({text})" if kind in ("int8_t", "int16_t") else text

    return emit


_SIGNED = {2: "<", 3: "<=", 4: ">", 5: ">="}
_UNSIGNED = {6: "<", 7: "<=", 8: ">", 9: ">="}
_BOOLS = {2: ">", 3: ">=", 4: "<", 5: "<="}
"""Signed comparisons of booleans, whose true is -1."""


_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


_REFLEXIVE = (0, 3, 5, 7, 9)
"""The predicates that hold for equal operands."""


def _cmpi(op: ir.Operation, operands: Operands) -> str:
    if op.name == "index.cmp":
        predicate = _PREDICATES.index(str(op.attributes["pred"]).split()[-1].rstrip(">)"))
    else:
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    left, right = map(paren, operands)
    if left == right and re.fullmatch(r"\w+", left):
        return ("false", "true")[predicate in _REFLEXIVE]  # compilers warn of it
    if predicate < 2:
        return f"{left} {('==', '!=')[predicate]} {right}"
    if predicate in _UNSIGNED:
        left, right = unsigned(op, operands)
        return f"{left} {_UNSIGNED[predicate]} {right}"
    symbols = _BOOLS if str(op.operands[0].type) == "i1" else _SIGNED
    return f"{left} {symbols[predicate]} {right}"


def _extsi(op: ir.Operation, operands: Operands) -> str:
    kind = c_type(op.results[0].type)
    if str(op.operands[0].type) == "i1":
        return f"({kind})-(int){paren(operands[0])}"
    return f"({kind}){paren(operands[0])}"


def _extui(op: ir.Operation, operands: Operands) -> str:
    return f"({c_type(op.results[0].type)}){unsigned(op, operands)[0]}"


def _trunci(op: ir.Operation, operands: Operands) -> str:
    if str(op.results[0].type) == "i1":
        return f"({paren(operands[0])} & 1) != 0"
    return wrapped(op, f"({c_type(op.results[0].type)}){paren(operands[0])}")


def _index_cast(op: ir.Operation, operands: Operands) -> str:
    kind = str(op.operands[0].type)
    if kind == "i64" and is_index(op):
        return f"fx_index({plain(operands[0])})"
    return _extsi(op, operands) if is_index(op) else _trunci(op, operands)


def _index_castui(op: ir.Operation, operands: Operands) -> str:
    if is_index(op) and str(op.operands[0].type) == "i64":
        return f"fx_index({plain(operands[0])})"
    return _extui(op, operands) if is_index(op) else _trunci(op, operands)


def _absi(op: ir.Operation, operands: Operands) -> str:
    value = plain(operands[0])
    return f"fx_max_{storage_of(op)}({value}, fx_sub_{storage_of(op)}(0, {value}))"


INTEGERS: dict[str, Expression] = {
    "arith.addi": _arithmetic("add", "+", "!="),
    "arith.subi": _arithmetic("sub", "-", "!="),
    "arith.muli": _arithmetic("mul", "*", "&"),
    "arith.divsi": _division("div", "/", True),
    "arith.remsi": _division("rem", "%", True),
    "arith.divui": _division("udiv", "/", False),
    "arith.remui": _division("urem", "%", False),
    "arith.floordivsi": _helper("floor_div"),
    "arith.ceildivsi": _helper("ceil_div"),
    "arith.ceildivui": _helper("uceil_div"),
    "arith.maxsi": _helper("max"),
    "arith.minsi": _helper("min"),
    "arith.maxui": _helper("umax"),
    "arith.minui": _helper("umin"),
    "arith.shli": _shift("shl"),
    "arith.shrsi": _shift("sar"),
    "arith.shrui": _shift("shr"),
    "arith.andi": _bitwise("&"),
    "arith.ori": _bitwise("|"),
    "arith.xori": _bitwise("^"),
    "arith.cmpi": _cmpi,
    "arith.extsi": _extsi,
    "arith.extui": _extui,
    "arith.trunci": _trunci,
    "arith.index_cast": _index_cast,
    "arith.index_castui": _index_castui,
    "math.absi": _absi,
    "math.ctlz": _helper("ctlz"),
    "math.cttz": _helper("cttz"),
    "math.ctpop": _helper("ctpop"),
    "math.ipowi": _helper("ipow"),
}
"""The expression of each operation with one result."""
INTEGERS |= {
    f"index.{name}": INTEGERS[f"arith.{other}"]
    for name, other in {
        "add": "addi", "sub": "subi", "mul": "muli", "divs": "divsi", "divu": "divui", "rems": "remsi", "remu": "remui",
        "floordivs": "floordivsi", "ceildivs": "ceildivsi", "ceildivu": "ceildivui", "maxs": "maxsi", "maxu": "maxui",
        "mins": "minsi", "minu": "minui", "shl": "shli", "shrs": "shrsi", "shru": "shrui", "and": "andi", "or": "ori",
        "xor": "xori", "cmp": "cmpi", "casts": "index_cast", "castu": "index_castui",
    }.items()
}  # fmt: skip


def _extended(writer: FunctionWriter, op: ir.Operation) -> None:
    """Write a product of 32 bits as one of 64 bits, in two halves."""
    kind = str(op.operands[0].type)
    if kind != "i32":
        raise UsageError(f"C source has no form of {op.name} of {kind}: build a library or an object")
    left, right = (paren(writer.scalar(value)) for value in op.operands)
    name = writer.new_name("v")
    if op.name == "arith.mulsi_extended":
        writer.line(f"const int64_t {name} = (int64_t){left} * {right};")
        wide = f"(uint64_t){name}"
    elif op.name == "arith.mului_extended":
        writer.line(f"const uint64_t {name} = (uint64_t)(uint32_t){left} * (uint32_t){right};")
        wide = name
    else:
        writer.line(f"const uint64_t {name} = (uint64_t)(uint32_t){left} + (uint32_t){right};")
        wide = name
    writer.name_scalar(op.results[0], f"(int32_t)(uint32_t){wide}")
    carry = f"({wide} >> 32) != 0" if op.name == "arith.addui_extended" else f"(int32_t)(uint32_t)({wide} >> 32)"
    writer.name_scalar(op.results[1], carry)


EXTENDED_INTEGERS = dict.fromkeys((f"arith.{name}_extended" for name in ("mulsi", "mului", "addui")), _extended)
"""The statement of each operation with two results."""
