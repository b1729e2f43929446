"""Constant arrays of C."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import torch

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.constant_arguments import resource_tensor
from fx_importer.mlir.dtypes import DTYPES, UNSIGNED
from fx_importer.mlir.resources import is_resource
from fx_importer.native.c_source.scalars import float_text, half_bits, integer_text, storage

_LINE = 116


def elements_of(value: ir.Attribute) -> torch.Tensor:
    """Return the elements of a constant. Raises `UsageError` if their type has none in torch."""
    kind = ir.ShapedType(value.type)
    if is_resource(value):
        tensor = resource_tensor(value, DTYPES | UNSIGNED)
        if tensor is None:
            raise UsageError(f"a constant of {kind} has no data: link its weights first")
        return tensor
    name = str(kind.element_type)
    if re.fullmatch(r"i\d+", name) and name not in DTYPES and int(name[1:]) <= 64:  # TOSA's i48
        return torch.tensor(_integers_of(value), dtype=getattr(torch, f"int{storage(int(name[1:]))}")).reshape(
            kind.shape
        )
    if name not in DTYPES | UNSIGNED:
        raise UsageError(f"C source has no constants of {name}: build a library or an object")
    dtype = (DTYPES | UNSIGNED)[name][0]
    values = ir.DenseIntElementsAttr(value) if not dtype.is_floating_point else ir.DenseFPElementsAttr(value)
    numbers = [values.get_splat_value().value] * math.prod(kind.shape) if values.is_splat else list(values)
    return torch.tensor(numbers, dtype=dtype).reshape(tuple(kind.shape))


def _integers_of(value: ir.Attribute) -> list[int]:
    """Return the elements of a constant of a width that the bindings do not read, from its text."""
    text, count = str(value), math.prod(ir.ShapedType(value.type).shape)
    if hexadecimal := re.match(r'dense<"0x([0-9A-F]*)"', text):
        data = bytes.fromhex(hexadecimal[1])
        size = len(data) // max(count, 1)
        return [int.from_bytes(data[at : at + size], "little", signed=True) for at in range(0, len(data), size)]
    numbers = [int(number) for number in re.findall(r"-?\d+", text.partition("> :")[0].partition("<")[2])]
    return numbers * count if len(numbers) == 1 else numbers


def array_text(name: str, element: str, data: torch.Tensor, comment: str) -> str:
    """Return the definition of an array. Elements are exact; complex numbers are pairs."""
    shape = "x".join(map(str, data.shape)) or "a number"
    numbers = _numbers(data.reshape(-1)) or ["0"]
    lines: list[str] = []
    line = " "
    for number in numbers:
        if len(line) + len(number) + 2 > _LINE:
            lines.append(line)
            line = " "
        line += f" {number},"
    body = "\n".join([*lines, line])
    about = f"/* {comment.replace('*/', '* /')}: {shape} */\n"
    return f"{about}static const {element} {name}[{max(data.numel(), 1)}] = {{\n{body}\n}};\n"


def _numbers(data: torch.Tensor) -> Sequence[str]:
    if data.is_complex():
        pairs = torch.view_as_real(data)
        kind = "f32" if data.dtype == torch.complex64 else "f64"
        return [f"{{{float_text(re_, kind)}, {float_text(im, kind)}}}" for re_, im in pairs.tolist()]
    if data.dtype in (torch.float16, torch.bfloat16):
        kind = "f16" if data.dtype == torch.float16 else "bf16"
        return [half_bits(number, kind) for number in data.tolist()]
    if data.dtype in (torch.float32, torch.float64):
        kind = "f32" if data.dtype == torch.float32 else "f64"
        return [_bare(float_text(number, kind)) for number in data.tolist()]
    if data.dtype.is_floating_point:
        return [str(number) for number in data.view(torch.int8).tolist()]
    if data.dtype == torch.bool:
        return ["true" if number else "false" for number in data.tolist()]
    signed = data.view(getattr(torch, f"int{data.dtype.itemsize * 8}"))
    return [_bare(integer_text(number, data.dtype.itemsize * 8)) for number in signed.tolist()]


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("(-") else text


def as_tensor(data: np.ndarray, element: str, shape: Sequence[int]) -> torch.Tensor:
    """Return bytes as a tensor with elements of an MLIR type."""
    dtype = (DTYPES | UNSIGNED)[element][0]
    flat = torch.from_numpy(np.ascontiguousarray(data).reshape(-1).view(np.uint8).copy())
    return flat.view(dtype).reshape(tuple(shape))


def array_name(text: str, names: Sequence[str]) -> str:
    """Return a name for the array of a weight."""
    name = "w_" + (re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "constant")
    unique, number = name, 2
    while unique in names:
        unique, number = f"{name}_{number}", number + 1
    return unique
