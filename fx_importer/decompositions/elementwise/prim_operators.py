"""Rules of ``prims`` operators as operators of ATen: torch's own decompositions and compiled optimizers emit some.

The torch dialect has few of them. Those that it has, such as ``prims.convert_element_type``, have no rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import Decomposition, decomposes
from fx_importer.fx_graph.operators import prims

_SAME_NAME = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos"),
    *("cosh", "bitwise_not", "ceil", "digamma", "erf", "erfc", "exp", "expm1"),
    *("exp2", "floor", "imag", "isfinite", "lgamma", "log", "log1p", "log2"),
    *("log10", "neg", "real", "reciprocal", "round", "sign", "signbit", "sin"),
    *("sinh", "tan", "tanh", "trunc", "add", "atan2", "bitwise_and", "bitwise_or"),
    *("bitwise_xor", "eq", "fmax", "fmin", "fmod", "gcd", "ge", "gt"),
    *("hypot", "igamma", "igammac", "le", "lt", "maximum", "minimum", "mul"),
    *("ne", "nextafter", "pow", "remainder", "rsqrt", "sub", "where", "clone"),
)
_OTHER_NAMES: Mapping[str, Callable[..., Any]] = {
    "bessel_i0": torch.special.i0,
    "bessel_i0e": torch.special.i0e,
    "bessel_i1": torch.special.i1,
    "bessel_i1e": torch.special.i1e,
    "bessel_j0": torch.special.bessel_j0,
    "bessel_j1": torch.special.bessel_j1,
    "spherical_bessel_j0": torch.special.spherical_bessel_j0,
    "erf_inv": torch.erfinv,
    "erfcx": torch.special.erfcx,
    "ndtri": torch.special.ndtri,
    "zeta": torch.special.zeta,
    "shift_left": torch.bitwise_left_shift,
    "shift_right_arithmetic": torch.bitwise_right_shift,
    "transpose": torch.permute,
    "rev": torch.flip,
    "cat": torch.cat,
    "reshape": torch.reshape,
}


def _renamed(name: str, function: Callable[..., Any]) -> Decomposition:
    """Return the rule of ``prims.<name>``: ``function`` of the same arguments."""
    return decomposes(getattr(prims, name).default)(lambda *operands: function(*operands))


@decomposes(prims.div.default)
def div(a: Tensor, b: Tensor) -> Tensor:
    """Return the quotient, truncated for integers."""
    return torch.div(a, b) if a.is_floating_point() or a.is_complex() else torch.div(a, b, rounding_mode="trunc")


@decomposes(prims.cbrt.default)
def cbrt(x: Tensor) -> Tensor:
    """Return the cube root, with the sign of ``x``."""
    return torch.copysign(torch.pow(x.abs(), 1 / 3), x)


@decomposes(prims.scalar_tensor.default)
def scalar_tensor(value: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    """Return a constant of rank zero."""
    del device
    return torch.full((), value, dtype=dtype) if isinstance(value, int | float) else NotImplemented


@decomposes(prims.broadcast_in_dim.default)
def broadcast_in_dim(x: Tensor, shape: Sequence[int], axes: Sequence[int]) -> Tensor:
    """Return ``x`` with its axes at the places ``axes`` of ``shape``, broadcast."""
    for axis in range(len(shape)):
        if axis not in axes:
            x = x.unsqueeze(axis)
    return x.expand(shape)


def _reduction(name: str, function: Callable[..., Tensor]) -> Decomposition:
    @decomposes(getattr(prims, name).default)
    def rule(x: Tensor, axes: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Any:
        axes = range(x.dim()) if axes is None else axes
        result = function(x, list(axes)) if axes else x.clone()
        return result if output_dtype is None else result.to(output_dtype)

    return rule


PRIMS: tuple[Decomposition, ...] = (
    *(_renamed(name, getattr(torch, name)) for name in _SAME_NAME),
    *(_renamed(name, function) for name, function in _OTHER_NAMES.items()),
    _reduction("amax", torch.amax),
    _reduction("amin", torch.amin),
    _reduction("sum", lambda x, axes: torch.sum(x, axes, dtype=x.dtype)),
    *(div, cbrt, scalar_tensor, broadcast_in_dim),
)


def fma(a: Tensor, b: Tensor | float, c: Tensor) -> Tensor:
    """Return ``a * b + c``, rounded twice as eager does."""
    return a * b + c


INDUCTOR_RULES: Mapping[str, Callable[..., Any]] = {"prims::fma": fma}
"""Rules by name: torch makes these operators when its compiler is imported, which takes seconds."""
