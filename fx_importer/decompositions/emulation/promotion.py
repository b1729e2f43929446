"""Rules that convert operands of different dtypes to the promoted one, as eager does before it computes.

The C++ lowerings compare a bool with an int64 in one bit, an int8 with a uint8 as it comes, and float32 with a rank-0
float64 in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._pytree import tree_map_only

from fx_importer.decompositions.elementwise.scalars import Number, scalar_like
from fx_importer.decompositions.emulation.low_precision import HALF_DTYPES
from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import Decomposition, decomposes, overloads
from fx_importer.fx_graph.operators import aten

_DEFAULT = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
_TO_FLOAT = ELEMENTWISE_TYPE_PROMOTION_KIND.INT_TO_FLOAT
_ARITHMETIC = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)
_SCALING = (aten.mul.Tensor, aten.div.Tensor, aten.div.Tensor_mode, aten.floor_divide.default)
_OF_TENSORS = (
    *(aten.eq.Tensor, aten.ne.Tensor, aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor),
    *(aten.maximum.default, aten.minimum.default, aten.fmax.default, aten.fmin.default, aten.rsub.Tensor),
    *(aten.clamp.Tensor, aten.clamp_min.Tensor, aten.clamp_max.Tensor, aten.pow.Tensor_Tensor),
    *(aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default),
    *(aten.bitwise_and.Tensor, aten.bitwise_or.Tensor, aten.bitwise_xor.Tensor),
    *(aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor, aten.gcd.default, aten.lcm.default),
    *(aten.remainder.Tensor, aten.fmod.Tensor, aten.floor_divide.default, aten.div.Tensor_mode),
    *(aten.hypot.default, aten.nextafter.default, aten.logaddexp.default, aten.logaddexp2.default),
    *(aten.addcmul.default, aten.addcdiv.default, aten.lerp.Tensor, aten.lerp.Scalar),
)
_OF_FLOATS = (
    *(aten.div.Tensor, aten.atan2.default, aten.copysign.Tensor, aten.xlogy.Tensor, aten.special_xlog1py.default),
)
"""Operators whose result is a float for integers too; these become floats at once."""


def _promote(operator: OpOverload) -> Decomposition:
    """Return the rule of ``operator`` on tensors of different real dtypes; on others it stays."""
    with_wide_numbers = operator in _ARITHMETIC
    scales = operator in _SCALING
    kind = _TO_FLOAT if operator in _OF_FLOATS else _DEFAULT

    @decomposes(operator)
    def rule(*operands: Any, **settings: Any) -> Any:
        if with_wide_numbers and isinstance(operands[0], Number):  # torch.add(2, x)
            return operator(scalar_like(operands[0], operands[1]), *operands[1:], **settings)
        tensors = [tensor for tensor in (*operands, *settings.values()) if isinstance(tensor, Tensor)]
        if len({tensor.dtype for tensor in tensors}) < 2 or any(tensor.is_complex() for tensor in tensors):
            return NotImplemented
        _, dtype = elementwise_dtypes(*tensors, type_promotion_kind=kind)
        # Eager rounds operands to half precision first, but not a second factor with one element.
        factor = operands[1] if scales and statically_known_true(operands[1].numel() == 1) else None
        computes_wide = with_wide_numbers or factor is not None
        wide = torch.float32 if computes_wide and dtype in HALF_DTYPES else dtype

        if factor is None and scales and dtype == torch.float16 and _may_be_one_beyond_float16(operands[1]):
            x, numbers = operands
            one = torch.zeros((), dtype=torch.int64, device=x.device) + numbers.numel() == 1
            return operator(x.float(), torch.where(one, numbers.float(), numbers.half().float()), **settings).to(dtype)

        def convert(x: Tensor) -> Tensor:
            return x.to(wide) if x is factor else x.to(dtype).to(wide)

        operands, settings = tree_map_only(Tensor, convert, (operands, settings))
        result = operator(*operands, **settings)
        return result if wide == dtype else result.to(dtype)

    return rule


def _may_be_one_beyond_float16(x: Tensor) -> bool:
    """Return whether ``x``, of a dynamic shape, may have one element at run time, and numbers beyond float16."""
    return x.dtype in (torch.int32, torch.int64) and not is_static(x)


@decomposes(aten.where.self)
def where(condition: Tensor, a: Tensor, b: Tensor) -> Any:
    """Convert both alternatives to the promoted dtype."""
    if a.dtype == b.dtype:
        return NotImplemented
    dtype = torch.result_type(a, b)
    return torch.where(condition, a.to(dtype), b.to(dtype))


@decomposes(aten.cat.default)
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """Convert all parts to the promoted dtype.

    The C++ lowering of a bool with 8-bit integers crashes, and of true with complex numbers gives -1.
    """
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) < 2:
        return NotImplemented
    dtype = reduce(torch.promote_types, dtypes)
    return torch.cat([tensor.to(dtype) for tensor in tensors], dim)


_ALL = dict.fromkeys((*_ARITHMETIC, *_OF_TENSORS, *_OF_FLOATS))
PROMOTIONS: tuple[Decomposition, ...] = (*map(_promote, overloads(_ALL)), where, cat)
