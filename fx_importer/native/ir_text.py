"""LLVM IR as text that older releases of LLVM read."""

from __future__ import annotations

import re
import struct
from typing import Any

from torch_mlir.dialects import llvm as llvm_dialect

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import operation_names

_TOKEN = re.compile(
    r"\b(?P<type>float|double|half|bfloat)\b"
    r"|(?<![\w.%@#])(?P<bits>f0x[0-9A-Fa-f]+)\b"
    r"|(?<![\w.%@#\"!])(?P<number>[-+]?(?:\d+\.\d*(?:e[-+]?\d+)?|inf|s?nan\(0x[0-9A-Fa-f]+\)|q?nan))(?![\w.])"
)
_STRING = re.compile(r'c?"[^"]*"')
_KINDS = ("float", "double", "half", "bfloat")


def llvm_ir(module: ir.Module) -> str:
    """Return ``module``, in the LLVM dialect, as LLVM IR whose floats are hexadecimal, as all releases read them."""
    if left := sorted({name for name in operation_names(module) if not name.startswith(("llvm.", "builtin.module"))}):
        raise RuntimeError(f"the module is not in the LLVM dialect: it has {', '.join(left)}")  # MLIR would crash
    translate: Any = llvm_dialect
    text: str = translate.translate_module_to_llvmir(module.operation).replace(" nocreateundeforpoison", "")
    return "\n".join(_line(line) if any(kind in line for kind in _KINDS) else line for line in text.split("\n"))


def _line(line: str) -> str:
    """Return a line with its floats in hexadecimal: a number has the type that stands before it."""
    pieces, end = list[str](), 0
    for match in _STRING.finditer(line):
        pieces += [_numbers(line[end : match.start()]), match[0]]
        end = match.end()
    return "".join((*pieces, _numbers(line[end:]))) if pieces else _numbers(line)


def _numbers(text: str) -> str:
    current = "float"

    def spelled(match: re.Match[str]) -> str:
        nonlocal current
        if match["type"]:
            current = match["type"]
            return match[0]
        if match["bits"]:
            return _of_bits(int(match["bits"][3:], 16), current)
        return _of_number(match["number"], current)

    return _TOKEN.sub(spelled, text)


def _of_bits(bits: int, kind: str) -> str:
    """Return the constant of ``kind`` that has ``bits``. A float is spelled as the double of the same value."""
    if kind == "double":
        return f"0x{bits:016X}"
    if kind == "half":
        return f"0xH{bits:04X}"
    if kind == "bfloat":
        return f"0xR{bits:04X}"
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    if value != value:  # a NaN keeps its payload in the high bits
        wide = (bits >> 31 << 63) | (0x7FF << 52) | ((bits & 0x7FFFFF) << 29)
        return f"0x{wide:016X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _of_number(text: str, kind: str) -> str:
    """Return the constant of ``kind`` that is spelled ``text`` in decimals, or as infinity or NaN."""
    sign = text[0] == "-"
    bare = text.lstrip("+-")
    if bare.startswith(("nan", "qnan", "snan")):
        quiet = {"float": 0x7FC00000, "double": 0x7FF8 << 48, "half": 0x7E00, "bfloat": 0x7FC0}[kind]
        top = {"float": 31, "double": 63, "half": 15, "bfloat": 15}[kind]
        payload = int(bare[bare.index("(") + 1 : -1], 16) if "(" in bare else 0
        return _of_bits(quiet | payload | sign << top, kind)
    value = float(text)
    if kind == "double":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if kind == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    import numpy as np

    bits = int(np.float32(value).view(np.uint32))
    if kind == "bfloat":
        return f"0xR{bits >> 16:04X}"
    return _of_bits(bits, "float")
