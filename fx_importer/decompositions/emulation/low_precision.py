"""Rules of half precision, computed in float32 and rounded once as eager does on a CPU, and of conversions of fp8."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only

from fx_importer.decompositions.elementwise.bit_views import float_bits
from fx_importer.decompositions.elementwise.scalars import Number, is_rounded
from fx_importer.decompositions.engine.kept_operators import is_kept, keep
from fx_importer.decompositions.engine.table import Decomposition, Operator, decomposes, overloads
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.torch_internals import E4M3FN_SATURATES

HALF_DTYPES = (torch.float16, torch.bfloat16)


_ACCUMULATING = (
    *(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.prod.default, aten.prod.dim_int),
    *(aten.linalg_vector_norm.default, aten.norm.Scalar, aten.norm.ScalarOpt_dim),
    *(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default),
    *(aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d.default),
    *(aten.adaptive_avg_pool3d.default, aten._adaptive_avg_pool3d.default),
)


def in_float32(*operators: Operator) -> tuple[Decomposition, ...]:
    """Return the rules that compute ``operators`` in float32 for half precision; other dtypes stay."""
    return tuple(_in_float32(operator) for operator in overloads(operators))


def _in_float32(operator: OpOverload) -> Decomposition:
    @decomposes(operator)
    def rule(*args: Any, **kwargs: Any) -> Any:
        requested = kwargs.get("dtype")
        dtypes = {leaf.dtype for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        dtype = requested if requested in HALF_DTYPES else next((half for half in HALF_DTYPES if half in dtypes), None)
        if dtype is None or not dtypes <= {*HALF_DTYPES, torch.float32}:
            return NotImplemented
        args, kwargs = tree_map_only(Tensor, torch.Tensor.float, (args, kwargs))
        if requested in HALF_DTYPES:
            kwargs["dtype"] = torch.float32
        result = operator(*args, **kwargs)
        narrow = requested is None or requested in HALF_DTYPES
        return tree_map_only(Tensor, lambda tensor: tensor.to(dtype), result) if narrow else result

    return rule


HALF_ACCUMULATION = in_float32(*_ACCUMULATING)
"""Reductions and pools; accumulated in half precision, a long sum would saturate or drift."""


def _wide_factor(operator: OpOverload) -> Decomposition:
    @decomposes(operator)
    def rule(x: Any, factor: Any = 0.01, **settings: Any) -> Any:  # the default slope of leaky_relu
        if not isinstance(x, Tensor) or x.dtype not in HALF_DTYPES or not is_rounded(factor, x.dtype):
            return NotImplemented
        factor = float(factor) if isinstance(factor, Number) else factor
        return operator(x.float(), factor, **settings).to(x.dtype)

    return rule


_WIDE = (
    *(aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar, aten.leaky_relu.default),
    *(aten.div.Tensor_mode, aten.div.Scalar_mode, aten.floor_divide.default, aten.floor_divide.Scalar),
)
WIDE_FACTORS = tuple(map(_wide_factor, _WIDE))
"""Products and quotients of half precision by a number that its dtype does not hold. Eager multiplies in float32 and
rounds the result."""


@decomposes(aten._to_copy.default)
def convert_half_precision(x: Tensor, *, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    """Convert float16 to bfloat16 and back by way of float32, which TOSA requires."""
    halves = {x.dtype, dtype} == {torch.float16, torch.bfloat16}
    return x.float().to(dtype) if halves else NotImplemented


# --- fp8 in integer arithmetic, for targets whose consumers lack fp8 types, as LLVM does ---


@dataclass(frozen=True)
class _Format:
    """A float format of 8 bits: sign, exponent, fraction."""

    fraction: int
    bias: int
    nan: int
    """The magnitude bits of NaN, and of every larger magnitude; of the fnuz formats, minus zero is the only NaN."""
    infinity: int | None = None
    """The magnitude bits of infinity, if the format has one."""
    fnuz: bool = False
    saturates: bool = False
    """Whether eager converts larger numbers and infinity to the largest finite number."""

    @property
    def largest(self) -> int:
        """The magnitude bits of the largest finite number."""
        return (self.nan if self.infinity is None else self.infinity) - 1


_FORMATS = {
    torch.float8_e4m3fn: _Format(3, 7, nan=0x7F, saturates=E4M3FN_SATURATES),
    torch.float8_e5m2: _Format(2, 15, nan=0x7D, infinity=0x7C),
    torch.float8_e4m3fnuz: _Format(3, 8, nan=0x80, fnuz=True),
    torch.float8_e5m2fnuz: _Format(2, 16, nan=0x80, fnuz=True),
}


@decomposes(aten._to_copy.default)
def convert_small_floats(x: Tensor, *, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    """Convert by way of float32, and between that and fp8 by integers."""
    del settings
    if dtype is None or dtype == x.dtype or not {x.dtype, dtype} & set(_FORMATS):
        return NotImplemented
    wide = _decoded(x, _FORMATS[x.dtype]) if x.dtype in _FORMATS else x.float()
    return _encoded(wide, _FORMATS[dtype], dtype) if dtype in _FORMATS else wide.to(dtype)


@decomposes(aten._to_copy.default)
def convert_fp8_by_float32(x: Tensor, *, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    """Convert integers and fp8 to fp8 by way of float32, and fp8 to integers: TOSA casts fp8 to other floats only."""
    del settings
    narrow = {x.dtype, dtype} & set(_FORMATS)
    others = {x.dtype, dtype} - set(_FORMATS)
    if dtype is None or dtype == x.dtype or not narrow or any(other.is_floating_point for other in others):
        return NotImplemented
    return x.float().to(dtype)


@decomposes(aten._to_copy.default)
def saturate_e4m3fn(x: Tensor, *, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    """Clamp to the largest numbers first, where eager saturates, infinity too: the targets give NaN."""
    del settings
    if (
        not E4M3FN_SATURATES
        or dtype is None
        or dtype != torch.float8_e4m3fn
        or x.dtype == dtype
        or is_kept(aten._to_copy.default)
    ):
        return NotImplemented
    largest = torch.finfo(dtype).max
    bounded = (x if x.dtype == torch.float32 else x.float()).clamp(-largest, largest)
    with keep(aten._to_copy.default):
        return bounded.to(dtype)


def _decoded(x: Tensor, form: _Format) -> Tensor:
    """Return fp8 as float32: exponent and fraction are moved, and subnormal numbers are multiples of the smallest."""
    bits = float_bits(x).int()
    magnitude = bits & 0x7F
    moved = (magnitude << (23 - form.fraction)) + ((127 - form.bias) << 23)
    normal = _as_float(moved)
    subnormal = magnitude.float() * 2.0 ** (1 - form.bias - form.fraction)
    value = torch.where(magnitude < (1 << form.fraction), subnormal, normal)
    if form.infinity is not None:
        value = torch.where(magnitude == form.infinity, math.inf, value)
    if form.fnuz:
        return torch.where(bits == -128, math.nan, torch.where(bits < 0, -value, value))
    value = torch.where(magnitude >= form.nan, math.nan, value)
    return torch.where(bits < 0, -value, value)


def _encoded(x: Tensor, form: _Format, dtype: torch.dtype) -> Tensor:
    """Return float32 as fp8, rounded to nearest, ties to even, in integers; overflow is as in eager."""
    bits = float_bits(x)
    magnitude = bits & 0x7FFFFFFF
    lost = 23 - form.fraction
    odd = (magnitude >> lost) & 1
    normal = (magnitude + ((1 << (lost - 1)) - 1) + odd - ((127 - form.bias) << 23)) >> lost
    # Added to the power of two whose last digit is the smallest fp8, float32 addition rounds to a multiple of that.
    scale = 2.0 ** (1 - form.bias - form.fraction + 23)
    tiny = float_bits(_as_float(magnitude) + scale) - int(127 + math.log2(scale)) * (1 << 23)
    smallest_normal = (127 - form.bias + 1) << 23
    encoded = torch.where(magnitude < smallest_normal, tiny, normal)
    finite = magnitude < (255 << 23)
    beyond = form.largest if form.saturates else form.nan if form.infinity is None else form.infinity
    encoded = torch.where((encoded > form.largest) | ~finite, beyond, encoded)
    encoded = torch.where(magnitude > (255 << 23), 0x7F if form.infinity is not None else form.nan, encoded)
    if form.fnuz:
        # Zero has no sign, and the bits of minus zero are NaN.
        signed = torch.where((bits < 0) & (encoded != 0) & (encoded < 0x80), encoded - 128, encoded)
        encoded = torch.where(encoded == 0x80, -128, signed)
    else:
        encoded = torch.where(bits < 0, encoded - 128, encoded)
    with keep(aten.view.dtype):
        return aten.view.dtype(encoded.to(torch.int8), dtype)


def _as_float(bits: Tensor) -> Tensor:
    with keep(aten.view.dtype):
        return aten.view.dtype(bits, torch.float32)
