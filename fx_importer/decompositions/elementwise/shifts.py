"""Rules of bitwise shifts, and of other bitwise operators with a number."""

from __future__ import annotations

import torch

from fx_importer.decompositions.elementwise.scalars import with_scalar
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

SHIFTS = (
    with_scalar(
        aten.bitwise_left_shift.Tensor,
        *(aten.__lshift__.Scalar, aten.bitwise_left_shift.Tensor_Scalar, aten.bitwise_left_shift.Scalar_Tensor),
    ),
    with_scalar(
        aten.bitwise_right_shift.Tensor,
        *(aten.__rshift__.Scalar, aten.bitwise_right_shift.Tensor_Scalar, aten.bitwise_right_shift.Scalar_Tensor),
    ),
    decomposes(aten.__lshift__.Tensor)(torch.bitwise_left_shift),
    decomposes(aten.__rshift__.Tensor)(torch.bitwise_right_shift),
)
"""Shifts, and Python's ``<<`` and ``>>``, as ``bitwise_left_shift`` and ``bitwise_right_shift`` of two tensors."""

BITWISE_SCALARS = tuple(
    with_scalar(packet.Tensor, packet.Scalar, packet.Scalar_Tensor)
    for packet in (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor)
)
"""Bitwise operators of a tensor and a number, as those of two tensors."""
