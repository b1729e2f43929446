"""Rules of bitwise shifts."""

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
