"""Constants of users' lowerings: numbers and tensors as attributes, and the bounds of element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch

from fx_importer.mlir.bindings import ir

Number: TypeAlias = bool | int | float

ELEMENTS = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.bool: "i1",
}
"""Element types of constants by torch dtype."""
_DTYPES = {element: dtype for dtype, element in ELEMENTS.items()}


class CannotEmit(Exception):
    """A rule emits something invalid, or unsupported by the target; the message is a sentence."""


def dense_attribute(context: ir.Context, value: torch.Tensor | Number, element: str | None = None) -> ir.Attribute:
    """Return a tensor, or a number as a tensor of rank 0, as an attribute, converted to ``element`` if given."""
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    element = ELEMENTS.get(tensor.dtype) if element is None else element
    if element not in _DTYPES:
        raise CannotEmit(f"constants are of {', '.join(_DTYPES)}, and not of {element or tensor.dtype}")
    bits = tensor.detach().to(_DTYPES[element]).contiguous()
    bits = bits.view(torch.int16) if bits.dtype is torch.bfloat16 else bits  # numpy has no bfloat16
    kind = ir.Type.parse(f"tensor<{''.join(f'{size}x' for size in tensor.shape)}{element}>", context)
    return ir.DenseElementsAttr.get(np.ascontiguousarray(bits.numpy()), type=kind, context=context)


def product(sizes: Sequence[int | None]) -> int:
    """Return the number of elements of a tensor of static sizes."""
    result = 1
    for size in sizes:
        result *= size or 0
    return result


def extreme(element: str, *, least: bool) -> Number:
    """Return the smallest (``least``) or the largest value of an element type."""
    if element == "i1":
        return not least
    if not element.startswith("i"):
        return float("-inf") if least else float("inf")
    bound = 2 ** (int(element[1:]) - 1)
    return -bound if least else bound - 1
