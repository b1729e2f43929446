"""Elementwise operators of random programs."""

from __future__ import annotations

from typing import Any

import torch

from testing.fuzzing.draw import DTYPES, Draw, Proposal, is_integer, is_real

UNARY = (
    *("abs", "neg", "sign", "sgn", "square", "relu", "logical_not", "isnan", "isinf", "isfinite", "signbit"),
    *("floor", "ceil", "trunc", "round", "frac", "bitwise_not", "nan_to_num", "positive", "isposinf", "isneginf"),
    *("clone", "zeros_like", "ones_like"),
)
UNARY_FLOAT = (
    *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sinh"),
    *("cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "reciprocal", "digamma"),
    *("lgamma", "deg2rad", "sinc", "i0", "erfinv"),
)
ACTIVATIONS = (
    *("gelu", "silu", "mish", "softplus", "elu", "hardswish", "hardsigmoid", "hardtanh", "relu6", "leaky_relu", "selu"),
    *("celu", "logsigmoid", "softsign", "tanhshrink", "softshrink", "hardshrink"),
)
BINARY = (
    *("add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "pow", "atan2", "hypot", "copysign"),
    *("logical_and", "logical_or", "logical_xor", "eq", "ne", "lt", "le", "gt", "ge", "xlogy", "logaddexp"),
    *("heaviside", "float_power", "gcd"),
)
WITH_NUMBER = ("add", "sub", "mul", "div", "pow", "eq", "ne", "lt", "le", "gt", "ge", "rsub", "float_power")
DIVISIONS = ("floor_divide", "remainder", "fmod", "true_divide")


def unary(draw: Draw) -> Proposal:
    return f"torch.{draw.one(UNARY)}", (draw.value(),), {}


def unary_float(draw: Draw) -> Proposal:
    return f"torch.{draw.one(UNARY_FLOAT)}", (draw.real(),), {}


def activation(draw: Draw) -> Proposal:
    return f"torch.nn.functional.{draw.one(ACTIVATIONS)}", (draw.floating(),), {}


def binary(draw: Draw) -> Proposal:
    a = draw.value()
    b = draw.beside(a)
    if draw.chance(0.3):
        a, b = b, a
    name = draw.one(BINARY)
    further = {"alpha": draw.one((2, -1))} if name in ("add", "sub") and draw.chance(0.15) else {}
    return f"torch.{name}", (a, b), further


def with_number(draw: Draw) -> Proposal:
    a = draw.value()
    number = draw.number(draw[a])
    name = draw.one(WITH_NUMBER)
    if name == "pow" and draw.chance(0.3):
        return "torch.pow", (draw.one((2, 2.0, 0.5, 3)), a), {}
    return f"torch.{name}", (a, number), {}


def divisions(draw: Draw) -> Proposal:
    a = draw.real()
    b: Any = draw.beside(a, is_real) if draw.chance(0.6) else draw.number(draw[a])
    if draw.chance(0.4):
        return "torch.div", (a, b), {"rounding_mode": draw.one(("floor", "trunc"))}
    return f"torch.{draw.one(DIVISIONS)}", (a, b), {}


def bits(draw: Draw) -> Proposal:
    def whole(x: torch.Tensor) -> bool:
        return is_integer(x) or x.dtype is torch.bool

    a = draw.value(whole, lambda: draw.dtype(lambda d: not d.is_floating_point and not d.is_complex))
    if draw.chance(0.4):
        small = draw.one((0, 1, 2, 5))
        return f"torch.bitwise_{draw.one(('left', 'right'))}_shift", (a, small), {}
    return f"torch.bitwise_{draw.one(('and', 'or', 'xor'))}", (a, draw.beside(a, whole)), {}


def choice(draw: Draw) -> Proposal:
    a = draw.value()
    condition = draw.beside(a, lambda x: x.dtype is torch.bool, same_dtype=0.0)
    other: Any = draw.beside(a) if draw.chance(0.7) else draw.number(draw[a])
    if draw.chance(0.3):
        return "torch.masked_fill", (a, condition, draw.number(draw[a])), {}
    return "torch.where", (condition, *((a, other) if draw.chance(0.7) else (other, a))), {}


def bounded(draw: Draw) -> Proposal:
    a = draw.real()
    if draw.chance(0.4):
        low = draw.beside(a, is_real) if draw.chance(0.8) else None
        high = draw.beside(a, is_real) if low is None or draw.chance(0.6) else None
        return "torch.clamp", (a, low, high), {}
    low, high = draw.number(draw[a]), draw.number(draw[a])
    match draw.rng.randrange(3):
        case 0:
            return "torch.clamp", (a,), {"min": low}
        case 1:
            return "torch.clamp", (a,), {"max": high}
    return "torch.clamp", (a, low, high), {}


def ternary(draw: Draw) -> Proposal:
    a = draw.value()
    dtype = draw[a].dtype
    b, c = (draw.beside(a, lambda x: x.dtype is dtype, same_dtype=1.0) for _ in range(2))
    match draw.rng.randrange(3):
        case 0:
            return "torch.lerp", (a, b, draw.one((0.25, 0.75)) if draw.chance(0.5) else c), {}
        case 1:
            return "torch.addcmul", (a, b, c), {"value": draw.one((1, 2, -1))}
    return "torch.addcdiv", (a, b, c), {"value": draw.one((1, 2, -1))}


def cast(draw: Draw) -> Proposal:
    a = draw.value()
    dtype = DTYPES[draw.one(draw.settings.dtypes)]
    if draw[a].is_complex() and not dtype.is_complex:
        return f"torch.{draw.one(('real', 'imag', 'abs', 'angle'))}", (a,), {}
    return "torch.Tensor.to", (a, dtype), {}
