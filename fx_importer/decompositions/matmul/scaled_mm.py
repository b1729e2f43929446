"""Rules of matrix products in few bits: ``_scaled_mm`` of fp8, and ``_int_mm`` of int8 and uint8."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


@decomposes(aten._scaled_mm.default)
def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Any:
    """Return ``(a @ b) * scale_a * scale_b + bias``, accumulated in float32, in ``out_dtype``, ``a``'s by default.

    Scales are one number, or one for each row of ``a`` and each column of ``b``; scales of blocks are reported as
    unsupported. ``use_fast_accum`` allows tensor cores to accumulate in fewer bits: a hint that eager ignores on a
    CPU too. ``scale_result`` multiplies the result for an fp8 ``out_dtype``.
    """
    del use_fast_accum
    (rows, _), (_, columns) = a.shape, b.shape
    scales = [scale_a.float(), scale_b.float()]
    for number, (scale, shape) in enumerate(zip(scales, ((rows, 1), (1, columns)), strict=True)):
        if all(size == 1 for size in scale.shape):
            scales[number] = scale.reshape(())
        elif tuple(scale.shape) != shape:
            return NotImplemented
    product = torch.mm(a.float(), b.float()) * scales[0] * scales[1]
    product = product if bias is None else product + bias.float()
    dtype = a.dtype if out_dtype is None else out_dtype
    if scale_result is not None and dtype.itemsize == 1:
        product = product * scale_result.float()
    return product.to(dtype)


@decomposes(aten._int_mm.default)
def int_mm(a: Tensor, b: Tensor) -> Any:
    """Multiply int32 matrices where the operands differ in sign, or a size is 0 or unknown: C++ has int8 by int8."""
    sizes = (*a.shape, *b.shape)
    if a.dtype == b.dtype == torch.int8 and all(isinstance(size, int) and size for size in sizes):
        return NotImplemented
    if any(isinstance(size, int) and size == 0 for size in sizes):
        return torch.zeros((a.shape[0], b.shape[1]), dtype=torch.int32)
    return torch.mm(a.to(torch.int32), b.to(torch.int32))


LOW_PRECISION_PRODUCTS = (scaled_mm, int_mm)
