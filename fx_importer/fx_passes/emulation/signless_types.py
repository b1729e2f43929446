"""Signed dtypes that emulate unsigned ones, and operators that are independent of the sign."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map

from fx_importer.fx_graph.operators import aten, prims

SIGNED_DTYPES = {
    torch.uint8: torch.int8,
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}
WIDER_DTYPES = {torch.uint8: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}

CONVERSIONS = (prims.convert_element_type.default, aten._to_copy.default, aten.to.dtype)

DATA_MOVEMENT = frozenset(
    (
        *(aten.alias.default, aten.clone.default, aten.detach.default, aten.lift_fresh_copy.default),
        *(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.view.dtype, aten.flatten.using_ints),
        prims.collapse.default,
        *(aten.permute.default, aten.transpose.int, aten.t.default, aten.expand.default, aten.repeat.default),
        *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default, aten.unfold.default),
        *(aten.slice.Tensor, aten.select.int, aten.narrow.default, aten.diagonal.default, aten.as_strided.default),
        *(aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int),
        *(aten.cat.default, aten.stack.default, aten.flip.default, aten.roll.default, aten.where.self),
        *(aten.index.Tensor, aten.index_select.default, aten.gather.default, aten.embedding.default),
        *(aten.index_put.default, aten.scatter.src, aten.scatter.value, aten.slice_scatter.default),
        *(aten.select_scatter.default, aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.constant_pad_nd.default),
        *(aten.full.default, aten.full_like.default, aten.empty.memory_format, aten.masked_select.default),
        *(aten.zeros_like.default, aten.ones_like.default, aten.empty_like.default, aten.select_copy.int),
    )
)
"""Operators that only move elements."""
FILLS = {
    aten.full.default: 1,
    aten.full_like.default: 1,
    aten.scatter.value: 3,
    aten.masked_fill.Scalar: 2,
    aten.constant_pad_nd.default: 2,
}
"""Position of the scalar argument that becomes an element."""

INDEXED = frozenset((aten.index.Tensor, aten.index_put.default))

SAME_FOR_BOTH_SIGNS = frozenset(
    (
        *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.neg.default, aten.eq.Tensor, aten.ne.Tensor),
        *(aten.eq.Scalar, aten.ne.Scalar, aten.logical_not.default, aten.any.default, aten.any.dim, aten.all.default),
        *(aten.bitwise_and.Tensor, aten.bitwise_or.Tensor, aten.bitwise_xor.Tensor, aten.bitwise_not.default),
        *(aten.bitwise_and.Scalar, aten.bitwise_or.Scalar, aten.bitwise_xor.Scalar),
        *(aten.sum.default, aten.sum.dim_IntList, aten.cumsum.default, aten.prod.default, aten.prod.dim_int),
    )
)


def as_signed(value: Any) -> Any:
    """Return example values with unsigned tensors viewed as signed ones of the same width."""

    def one(value: Any) -> Any:
        if not is_unsigned(value):
            return value
        if isinstance(value, FakeTensor):
            with value.fake_mode, torch.no_grad():
                return value.view(SIGNED_DTYPES[value.dtype])
        return value.view(SIGNED_DTYPES[value.dtype])

    return tree_map(one, value)


def signed_dtype_of(value: Any) -> Any:
    """Return the signed dtype of the same width for an unsigned one; other values are returned unchanged."""
    return SIGNED_DTYPES.get(value, value) if isinstance(value, torch.dtype) else value


def wider_dtype_of(value: Any) -> Any:
    """Return a signed dtype that holds all values of an unsigned one; int64 for uint64."""
    return WIDER_DTYPES.get(value, signed_dtype_of(value)) if isinstance(value, torch.dtype) else value


def is_unsigned(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in SIGNED_DTYPES
