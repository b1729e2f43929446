"""Rules of bitwise shifts, and of other bitwise operators with a number."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from fx_importer.decompositions.elementwise.scalars import Number, on_tensors, scalar_like
from fx_importer.decompositions.engine.kept_operators import is_kept, keep
from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import aten


def _shift(onto: OpOverload, *operators: OpOverload, left: bool) -> Decomposition:
    """Return the rule of ``onto``, a shift of two tensors, and of its other spellings.

    If the number of bits is negative or exceeds the width, eager shifts every bit out: the result is 0, and -1 for
    negative integers that are shifted to the right. MLIR's shifts are undefined there.
    """

    @decomposes(onto, *operators)
    def shift(a: Tensor | Number, b: Tensor | Number) -> Any:
        if is_kept(onto) or not all(isinstance(operand, Tensor | Number) for operand in (a, b)):
            return NotImplemented
        dtype = torch.result_type(a, b)
        bits = torch.iinfo(dtype).bits
        x, by = (operand.to(dtype) if isinstance(operand, Tensor) else None for operand in (a, b))
        x = scalar_like(a, by) if x is None else x  # type: ignore[arg-type]
        last = bits - 1 if dtype.is_signed and not left else None  # leaves the sign
        with keep(onto):
            if not isinstance(b, Tensor):
                inside = 0 <= b < bits
                shifted = onto(x, torch.full((), b if inside else last or 0, dtype=dtype))
                return shifted if inside or last is not None else torch.zeros_like(shifted)
            inside = torch.logical_and(by >= 0, by < bits)  # type: ignore[operator]
            shifted = onto(x, torch.where(inside, by, torch.full((), last or 0, dtype=dtype)))  # type: ignore[arg-type]
        return shifted if last is not None else torch.where(inside, shifted, torch.zeros((), dtype=dtype))

    return shift


SHIFTS = (
    _shift(
        aten.bitwise_left_shift.Tensor,
        *(aten.__lshift__.Scalar, aten.bitwise_left_shift.Tensor_Scalar, aten.bitwise_left_shift.Scalar_Tensor),
        left=True,
    ),
    _shift(
        aten.bitwise_right_shift.Tensor,
        *(aten.__rshift__.Scalar, aten.bitwise_right_shift.Tensor_Scalar, aten.bitwise_right_shift.Scalar_Tensor),
        left=False,
    ),
    decomposes(aten.__lshift__.Tensor)(torch.bitwise_left_shift),
    decomposes(aten.__rshift__.Tensor)(torch.bitwise_right_shift),
)
"""Shifts, and Python's ``<<`` and ``>>``, as ``bitwise_left_shift`` and ``bitwise_right_shift`` of two tensors."""


def _with_scalar(packet: OpOverloadPacket) -> Decomposition:
    @decomposes(packet.Scalar, packet.Scalar_Tensor)
    def rule(a: Tensor | Number, b: Tensor | Number) -> Tensor:
        return on_tensors(packet.Tensor, a, b)

    return rule


BITWISE_SCALARS = tuple(map(_with_scalar, (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor)))
"""Bitwise operators of a tensor and a number, as operators of two tensors."""
