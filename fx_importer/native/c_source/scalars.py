"""Scalars in C: types and constants."""

from __future__ import annotations

import math
import re

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir

_ATOM = re.compile(r"0x[\da-f.]+p[+-]\d+f?|[\w.]+(?:\([^()]*\))?")
FLOATS = {"f32": "float", "f64": "double"}
BITS = ("f16", "bf16")
"""Floats that are their bits, as C has no type for them."""
COMPLEX = {"complex<f32>": "fx_complex64", "complex<f64>": "fx_complex128"}
COMPLEX_TYPES = """typedef struct { float re, im; } fx_complex64;
typedef struct { double re, im; } fx_complex128;
"""


def c_type(kind: ir.Type) -> str:
    """Return the type of C of a scalar. Raises `UsageError` for types that C lacks."""
    text = str(kind)
    if text in FLOATS:
        return FLOATS[text]
    if text in BITS:
        return "uint16_t"
    if text == "index":
        return "ptrdiff_t"
    if text in COMPLEX:
        return COMPLEX[text]
    if text.startswith("f8"):
        return "int8_t"
    if re.fullmatch(r"i\d+", text):
        width = int(text[1:])
        if width == 1:
            return "bool"
        if width <= 64:
            return f"int{storage(width)}_t"
    raise UsageError(f"C source has no type for {text}: build a library or an object")


def storage(width: int) -> int:
    """Return the bits of the integer that holds one of ``width`` bits, with its sign extended."""
    return next(size for size in (8, 16, 32, 64) if width <= size)


def width_of(kind: ir.Type) -> int:
    return 64 if str(kind) == "index" else int(str(kind)[1:])


def paren(text: str) -> str:
    """Return ``text`` as an operand."""
    return text if _ATOM.fullmatch(text) or _is_enclosed(text) else f"({text})"


def _is_enclosed(text: str) -> bool:
    if not re.match(r"\w*[(\[]", text) or text[-1] not in ")]":
        return False
    depth, opened = 0, False
    for position, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        opened |= depth > 0
        if opened and not depth and position < len(text) - 1:
            return text[position + 1] == "[" and _is_enclosed("x" + text[position + 1 :])
    return True


def plain(text: str) -> str:
    """Return ``text`` without parentheses around all of it."""
    return text[1:-1] if text.startswith("(") and _is_enclosed(text) else text


def constant(value: ir.Attribute, kind: ir.Type) -> str:
    """Return a constant of a scalar type."""
    text = str(kind)
    if text in FLOATS or text in BITS:
        number = ir.FloatAttr(value).value
        return float_text(number, text) if text in FLOATS else half_bits(number, text)
    if text.startswith("f8"):
        raise UsageError(f"C source has no constants of {text}: build a library or an object")
    if text in COMPLEX:
        parts = [float(ir.FloatAttr(part).value) for part in ir.ArrayAttr(value)]
        return f"({COMPLEX[text]}){{{', '.join(float_text(part, text[8:-1]) for part in parts)}}}"
    return integer_text(ir.IntegerAttr(value).value, 64 if text == "index" else int(text[1:]), text == "index")


def integer_text(number: int, width: int, index: bool = False) -> str:
    """Return an integer of ``width`` bits."""
    if width == 1:
        return "true" if number else "false"
    if index:
        return str(number) if number >= 0 else f"({number})"
    if number == -(1 << 63):
        return "INT64_MIN"
    if number == -(1 << 31) and width == 32:
        return "INT32_MIN"
    text = f"INT64_C({abs(number)})" if abs(number) >= 1 << 31 else str(abs(number))
    return text if number >= 0 else f"(-{text})"


def float_text(number: float, kind: str) -> str:
    """Return a float, exactly."""
    suffix = "f" if kind == "f32" else ""
    if math.isnan(number):
        return "NAN" if suffix else "(double)NAN"
    if math.isinf(number):
        text = "INFINITY" if suffix else "(double)INFINITY"
        return text if number > 0 else f"(-{text})"
    if number == int(number) and abs(number) < 1e6:
        text = f"{abs(int(number))}.0{suffix}"
    elif float(short := f"{abs(number):.4g}") == abs(number) and "e" not in short and "." in short:
        text = f"{short}{suffix}"
    else:
        mantissa, exponent = abs(number).hex().split("p")
        text = f"{mantissa.rstrip('0') if '.' in mantissa else mantissa}p{exponent}{suffix}".replace(".p", "p")
    return text if math.copysign(1.0, number) > 0 else f"(-{text})"


def half_bits(number: float, kind: str) -> str:
    """Return the bits of a float of 16 bits."""
    import torch

    dtype = torch.float16 if kind == "f16" else torch.bfloat16
    return f"0x{int(torch.tensor(number, dtype=dtype).view(torch.int16).item()) & 0xFFFF:04x}"
