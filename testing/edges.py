"""Operators on special values: NaN, infinities, signed zeros, limits of ranges, ties, half precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

EXACT = (0.0, 0.0)
FLOAT = (2e-5, 1e-37)
"""Relative and absolute tolerance; the absolute one is small, so values near zero are compared relatively."""


@dataclass(frozen=True)
class Row:
    """One operation, or several of a kind, on special values, compared with eager."""

    name: str
    compute: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    tolerance: tuple[float, float] = FLOAT
    zeros: bool = True
    """Whether the sign of a zero is compared. Not if eager's depends on vectorization."""


FLOATS = torch.tensor(
    [
        *(
            nan,
            inf,
            -inf,
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            -1.5,
            2.5,
            -2.5,
            3.5,
            6.0,
            7.0,
            -3.0,
            -4.0,
            20.5,
            1e-10,
        ),
        *(-1e-10, 88.0, -88.0, 100.0, -110.0, 1e10, -1e10, 3.4028235e38, -3.4028235e38, 1.1754944e-38, 1e-41, -1e-41),
    ]
)
"""Largest, smallest normal and subnormal numbers among them."""
_SOME = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.0, -3.0, 0.5, 3.4028235e38, 1.1754944e-38])
LEFT, RIGHT = (each.reshape(-1).contiguous() for each in torch.meshgrid(_SOME, _SOME, indexing="ij"))
"""Every pair of edge values."""
_SMALLER = _SOME[_SOME.nan_to_num(0, 0, 0).max() != _SOME]
NUMERATOR, DENOMINATOR = (each.reshape(-1).contiguous() for each in torch.meshgrid(_SMALLER, _SMALLER, indexing="ij"))
_FINITE = torch.tensor([7.0, -7.0, 7.5, -7.5, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1e6, -1e6, 0.3])
DIVIDEND, DIVISOR = (each.reshape(-1).contiguous() for each in torch.meshgrid(_FINITE, _FINITE, indexing="ij"))
ROWS_OF_FLOATS = torch.tensor(
    [
        *([1.0, 2.0, 3.0], [-inf, 1.0, 2.0], [-inf, -inf, -inf], [inf, 1.0, 2.0], [nan, 1.0, 5.0], [1e4, -1e4, 1e4]),
        *([-1e30, -1e30, -1e30], [2.0, 2.0, nan], [inf, -inf, nan], [-0.0, 0.0, -0.0]),
    ]
)


def _ints(dtype: torch.dtype) -> Tensor:
    ends = torch.iinfo(dtype)
    return torch.tensor([0, 1, -1, 2, -2, 3, -3, 7, -7, 8, 10, -10, 100, -100, ends.max, ends.min], dtype=dtype)


def _int_pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return pairs for division: without zero divisors, and without the minimum divided by -1."""
    x, y = (each.reshape(-1) for each in torch.meshgrid(_ints(dtype), _ints(dtype), indexing="ij"))
    kept = (y != 0) & ~((x == torch.iinfo(dtype).min) & (y == -1))
    return x[kept], y[kept]


def _unary(tolerance: tuple[float, float] = FLOAT, **functions: Callable[[Tensor], Any]) -> Iterator[Row]:
    for name, function in functions.items():
        yield Row(name, function, (FLOATS,), tolerance)


def _pairs(
    tolerance: tuple[float, float] = FLOAT, zeros: bool = True, **functions: Callable[..., Any]
) -> Iterator[Row]:
    for name, function in functions.items():
        yield Row(name, function, (LEFT, RIGHT), tolerance, zeros)


def _activations() -> Iterator[Row]:
    yield from _unary(
        hardtanh=F.hardtanh,
        hardtanh_asymmetric=lambda x: F.hardtanh(x, -2.0, 3.0),
        prelu=lambda x: F.prelu(x, torch.full((1,), 0.25)),
        elu=F.elu,
        selu=F.selu,
        celu=lambda x: F.celu(x, 2.0),
        silu=F.silu,
        mish=F.mish,
        sigmoid=torch.sigmoid,
        logsigmoid=F.logsigmoid,
        tanh=torch.tanh,
        softplus=F.softplus,
        softplus_beta=lambda x: F.softplus(x, 2.0, 10.0),
        softsign=F.softsign,
        tanhshrink=F.tanhshrink,
        hardshrink=F.hardshrink,
        threshold=lambda x: F.threshold(x, 1.0, -7.0),
        hardswish=F.hardswish,
        hardsigmoid=F.hardsigmoid,
        glu=lambda x: F.glu(x),
    )
    for name, function in {
        "relu": torch.relu,
        "relu6": F.relu6,
        "softshrink": F.softshrink,
        "leaky_relu": F.leaky_relu,
        "leaky_relu_slope_2": lambda x: F.leaky_relu(x, 2.0),
    }.items():
        yield Row(name, function, (FLOATS,), zeros=False)
    usual = FLOATS[~(FLOATS.abs() > 1e30)]
    yield Row("gelu", F.gelu, (usual,), (2e-5, 1e-6))
    yield Row("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), (usual,), (2e-5, 1e-6))
    yield Row("gelu_of_the_largest", F.gelu, (torch.tensor([inf, -inf, 3.4028235e38, -3.4028235e38] * 4),))


def _clamps() -> Iterator[Row]:
    bounds = torch.tensor([-1.0, 0.0, 1.0, nan, inf, -inf, 2.0, 0.5] * 4)
    yield from _unary(
        clamp=lambda x: x.clamp(-2.0, 2.0),
        clamp_min=lambda x: x.clamp(min=1.0),
        clamp_max=lambda x: x.clamp(max=1.0),
        clamp_int_bounds=lambda x: x.clamp(-2, 3),
        clamp_inf=lambda x: x.clamp(-inf, inf),
        clamp_min_above_max=lambda x: x.clamp(3.0, 1.0),
        clamp_nan=lambda x: x.clamp(nan, 2.0),
        clamp_min_op=lambda x: torch.clamp_min(x, -0.5),
        clamp_max_op=lambda x: torch.clamp_max(x, -0.5),
    )
    yield Row("clamp_tensor_min", lambda x, b: x.clamp(min=b), (FLOATS, bounds), zeros=False)
    yield Row("clamp_tensor_max", lambda x, b: x.clamp(max=b), (FLOATS, bounds), zeros=False)
    yield Row("clamp_tensors", lambda x, b: torch.clamp(x, b - 1, b), (FLOATS, bounds), zeros=False)
    for dtype in (torch.int32, torch.int64, torch.int8):
        x = _ints(dtype)
        yield Row(f"clamp_{_short(dtype)}", lambda x: (x.clamp(-3, 7), x.clamp(min=0), x.clamp(max=2)), (x,))
        yield Row(f"relu_{_short(dtype)}", torch.relu, (x,))
    yield Row("clamp_i32_float_bounds", lambda x: x.clamp(-1.5, 2.5), (_ints(torch.int32),))
    yield Row("relu6_i32", F.relu6, (_ints(torch.int32),))


def _extremes() -> Iterator[Row]:
    yield from _pairs(
        EXACT,
        zeros=False,
        minimum=torch.minimum,
        maximum=torch.maximum,
        fmin=torch.fmin,
        fmax=torch.fmax,
    )
    x = ROWS_OF_FLOATS
    yield Row("amax", lambda x: x.amax(1), (x,), EXACT, zeros=False)
    yield Row("amin", lambda x: x.amin(1), (x,), EXACT, zeros=False)
    yield Row("max_all", lambda x: x.max(), (x,), EXACT)
    yield Row("min_all", lambda x: x.min(), (x,), EXACT)
    yield Row("max_all_without_nan", lambda x: x.max(), (x[:4],), EXACT)
    yield Row("min_all_of_inf", lambda x: x.min(), (torch.full((3,), inf),), EXACT)
    yield Row("max_all_of_minus_inf", lambda x: x.max(), (torch.full((3,), -inf),), EXACT)
    yield Row("max_dim", lambda x: tuple(x.max(1)), (x,), EXACT, zeros=False)
    yield Row("min_dim", lambda x: tuple(x.min(1)), (x,), EXACT, zeros=False)
    yield Row("aminmax", lambda x: tuple(torch.aminmax(x, dim=1)), (x,), EXACT, zeros=False)
    yield Row("argmax", lambda x: x.argmax(1), (x,))
    yield Row("argmin", lambda x: x.argmin(1), (x,))
    yield Row("argmax_all", lambda x: x.argmax(), (x,))
    yield Row("argmax_ties", lambda x: (x.argmax(1), x.argmin(1)), (torch.tensor([[1.0, 3, 3, 1], [2, 2, 2, 2]]),))
    yield Row("amax_i64", lambda x: (x.amax(1), x.amin(1)), (_ints(torch.int64).reshape(2, 8),))
    yield Row("amax_i32", lambda x: (x.amax(1), x.amin(1)), (_ints(torch.int32).reshape(2, 8),))
    yield Row("argmax_i32", lambda x: (x.argmax(1), x.argmin(1)), (_ints(torch.int32).reshape(2, 8),))
    image = torch.tensor([nan, -inf, -3.0, -5.0, inf, -1.0, -2.0, -inf, -inf] + [-1.0] * 7).reshape(1, 1, 4, 4)
    image = image.roll(5, -1)
    yield Row("max_pool", lambda x: F.max_pool2d(x, 2), (image,), EXACT)
    yield Row("max_pool_padded", lambda x: F.max_pool2d(x, 3, 2, 1), (image,), EXACT)
    yield Row("max_pool_of_minus_inf", lambda x: F.max_pool2d(x, 3, 1, 1), (torch.full((1, 1, 3, 3), -inf),), EXACT)
    yield Row("max_pool_indices", lambda x: F.max_pool2d(x, 2, return_indices=True), (image,), EXACT)
    volume = image.reshape(1, 1, 2, -1, image.shape[-1])
    yield Row("max_pool3d_indices", lambda x: F.max_pool3d(x, (1, 2, 2), return_indices=True), (volume,), EXACT)
    yield Row("adaptive_max_pool", lambda x: F.adaptive_max_pool2d(x, 1), (image[..., 1:],), EXACT)
    yield Row("avg_pool", lambda x: F.avg_pool2d(x, 3, 2, 1), (image,))
    yield Row("avg_pool_no_pad_count", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (image,))
    yield Row("max_pool1d", lambda x: F.max_pool1d(x, 3, 1, 1), (x.reshape(1, 1, -1),), EXACT, zeros=False)
    yield Row("cummax", lambda x: tuple(torch.cummax(x, 1)), (x,), EXACT, zeros=False)


def _softmaxes() -> Iterator[Row]:
    x = ROWS_OF_FLOATS
    yield Row("softmax", lambda x: x.softmax(1), (x,))
    yield Row("log_softmax", lambda x: x.log_softmax(1), (x,), (2e-5, 1e-6))
    yield Row("logsumexp", lambda x: x.logsumexp(1), (x,))
    yield Row("softmin", lambda x: F.softmin(x, 1), (x,))
    masked = torch.tensor([[0.0, -inf, -inf], [0.0, 0.0, -inf], [0.0, 0.0, 0.0]])
    q = torch.linspace(-2, 2, 12).reshape(1, 3, 4)
    yield Row("attention_mask", lambda q, m: F.scaled_dot_product_attention(q, q, q, m), (q, masked))
    yield Row(
        "cross_entropy",
        lambda x: F.cross_entropy(x, torch.tensor([0, 2])),
        (torch.tensor([[1e4, 0, 1], [-inf, 0, 1]]),),
    )
    yield Row("normalize_zero", lambda x: F.normalize(x, dim=1), (torch.tensor([[0.0, 0.0], [3.0, 4.0]]),))
    yield Row("cosine_zero", lambda x: F.cosine_similarity(x, x + 1, dim=1), (torch.tensor([[0.0, 0.0], [3.0, 4.0]]),))


def _functions() -> Iterator[Row]:
    yield from _unary(
        sqrt=torch.sqrt,
        rsqrt=torch.rsqrt,
        exp=torch.exp,
        exp2=torch.exp2,
        expm1=torch.expm1,
        log=torch.log,
        log2=torch.log2,
        log10=torch.log10,
        log1p=torch.log1p,
        reciprocal=torch.reciprocal,
        square=torch.square,
        erf=torch.erf,
        erfc=torch.erfc,
        sinh=torch.sinh,
        cosh=torch.cosh,
        asinh=torch.asinh,
        acosh=torch.acosh,
        atanh=torch.atanh,
        asin=torch.asin,
        acos=torch.acos,
        atan=torch.atan,
        logit=torch.logit,
        logit_eps=lambda x: torch.logit(x, 1e-6),
        sinc=torch.sinc,
        exp_of_log=lambda x: x.log().exp(),
        log_of_exp=lambda x: x.exp().log(),
    )
    angles = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1e-10, -1e-10, 1.0, -2.0, 100.0, -1000.0, 1e-41])
    yield Row("sin", torch.sin, (angles,), (2e-5, 1e-6))
    yield Row("cos", torch.cos, (angles,), (2e-5, 1e-6))
    yield Row("tan", torch.tan, (angles,), (2e-5, 1e-6))
    yield from _pairs(atan2=torch.atan2, hypot=torch.hypot, copysign=torch.copysign, xlogy=torch.xlogy)
    yield from _pairs((2e-5, 1e-7), logaddexp=torch.logaddexp, logaddexp2=torch.logaddexp2)
    yield from _pairs(nextafter=torch.nextafter)
    yield from _pairs(pow=torch.pow)
    for exponent in (0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5, 0.0, 2.25, inf, -inf, nan):
        yield Row(f"pow_of_{exponent}", lambda x, e=exponent: x**e, (FLOATS,))
    yield from _unary(two_pow=lambda x: 2.0**x, minus_two_pow=lambda x: torch.pow(-2.0, x), zero_pow=lambda x: 0.0**x)
    base = torch.tensor([0, 1, -1, 2, -2, 3, 10, -10], dtype=torch.int32)
    for exponent in (0, 1, 2, 3, 5):
        yield Row(f"pow_i32_of_{exponent}", lambda x, e=exponent: x**e, (base,))
        yield Row(f"pow_i64_of_{exponent}", lambda x, e=exponent: x**e, (base.long(),))
    yield Row("pow_i64_tensors", torch.pow, (base.long(), torch.tensor([0, 5, 3, 62, 63, 4, 2, 1])))
    yield Row("pow_i64_wraps", lambda x: x**3, (_ints(torch.int64),))
    yield Row("pow_i32_of_half", lambda x: x**0.5, (base,))
    yield Row("pow_i32_of_float_tensor", lambda x: x ** torch.tensor(2.0), (base,))


def _division() -> Iterator[Row]:
    for name, (x, y) in {
        "": (NUMERATOR, DENOMINATOR),
        "_signs": (DIVIDEND, DIVISOR),
        "_i32": _int_pairs(torch.int32),
        "_i64": _int_pairs(torch.int64),
        "_i8": _int_pairs(torch.int8),
        "_mixed": (torch.tensor([7, -7, 8, -8, 0, 1], dtype=torch.int32), torch.tensor([2.0, 2, -3, -3, -2, inf])),
    }.items():
        yield Row(f"remainder{name}", torch.remainder, (x, y))
        yield Row(f"fmod{name}", torch.fmod, (x, y))
        yield Row(f"floor_divide{name}", torch.floor_divide, (x, y), zeros=False)
        yield Row(f"div_floor{name}", lambda x, y: torch.div(x, y, rounding_mode="floor"), (x, y), zeros=False)
        yield Row(f"div_trunc{name}", lambda x, y: torch.div(x, y, rounding_mode="trunc"), (x, y), zeros=False)
        yield Row(f"div{name}", torch.div, (x, y))
    for scalar in (3, -3):
        for dtype in (torch.int32, torch.int64):
            x = _ints(dtype)
            kind = f"{_short(dtype)}_{scalar}"
            yield Row(f"remainder_by_{kind}", lambda x, s=scalar: x % s, (x,))
            yield Row(f"fmod_by_{kind}", lambda x, s=scalar: torch.fmod(x, s), (x,))
            yield Row(f"floor_divide_by_{kind}", lambda x, s=scalar: x // s, (x,))
            yield Row(f"div_trunc_by_{kind}", lambda x, s=scalar: torch.div(x, s, rounding_mode="trunc"), (x,))
            yield Row(f"div_by_{kind}", lambda x, s=scalar: x / s, (x,))
        yield Row(f"remainder_by_{scalar}", lambda x, s=scalar: x % s, (FLOATS,))
        yield Row(f"fmod_by_{scalar}", lambda x, s=scalar: torch.fmod(x, s), (FLOATS,))
        yield Row(f"floor_divide_by_{scalar}", lambda x, s=scalar: x // s, (FLOATS,), zeros=False)
        yield Row(f"remainder_of_{scalar}", lambda x, s=scalar: torch.remainder(s, x), (DIVISOR[:13],))
    largest = torch.tensor([3.4028235e38, -3.4028235e38] * 8), torch.tensor([0.5, 1.1754944e-38] * 8)
    yield Row("remainder_of_the_largest", lambda x, y: (torch.remainder(x, y), torch.fmod(x, y)), largest)
    yield Row("div_by_zero", lambda x: (x / 0.0, x / -0.0, 1.0 / x), (FLOATS,))
    zeros = torch.zeros(FLOATS.numel())
    yield Row(
        "mul_by_zero",
        lambda x, z: (0.0 * x, x * -0.0, x / inf, x * torch.zeros(1), torch.zeros_like(x) * x, x.half() * 0.0, x * z),
        (FLOATS, zeros),
    )
    yield Row("add_of_zero", lambda x: (x + 0.0, x + -0.0, x - 0.0, x - -0.0, 0.0 - x, x + torch.zeros(1)), (FLOATS,))
    yield Row("div_i32_by_zero", lambda x: x / 0, (_ints(torch.int32),))


def _integers() -> Iterator[Row]:
    for dtype in (torch.int32, torch.int64, torch.int8, torch.int16):
        x, kind = _ints(dtype), _short(dtype)
        bits = torch.iinfo(dtype).bits
        amounts = torch.tensor([0, 1, 2, 3, bits - 1, bits // 2, 1, 2] * 2, dtype=dtype)
        yield Row(f"left_shift_{kind}", lambda x, y: (x << y, x << 1), (x, amounts))
        yield Row(f"right_shift_{kind}", lambda x, y: (x >> y, x >> 1), (x, amounts))
        wide = torch.tensor([bits, bits + 1, -1, 2] * 4, dtype=dtype)
        yield Row(f"left_shift_past_the_width_{kind}", lambda x, y: x << y, (x, wide))
        yield Row(f"right_shift_past_the_width_{kind}", lambda x, y: x >> y, (x, wide))
        yield Row(f"bitwise_{kind}", lambda x, y: (x & y, x | y, x ^ y, ~x), (x, x.roll(1)))
        yield Row(f"abs_neg_{kind}", lambda x: (x.abs(), -x, x.sign()), (x,))
        yield Row(f"sum_{kind}", lambda x: (x.sum(), x.sum(0, dtype=x.dtype)), (x.repeat(2),))
        yield Row(f"prod_{kind}", lambda x: (x[5:].prod(), x[1:6].prod()), (x,))
        yield Row(f"arithmetic_wraps_{kind}", lambda x: (x + 1, x * x, x - 5, x * 3), (x,))
        yield Row(f"cumsum_{kind}", lambda x: x.cumsum(0), (x,))
        yield Row(f"to_float_{kind}", lambda x: (x.float(), x.half(), x.bool(), x.to(torch.int8), x.long()), (x,))
        yield Row(f"compare_{kind}", lambda x, y: (x < y, x >= y, x == y, x > 0, x != -1), (x, x.flip(0)))
    yield Row("mean_of_ints_as_float", lambda x: x.mean(dtype=torch.float32), (_ints(torch.int32)[:12],))
    yield Row("matmul_i32_wraps", lambda x: x.reshape(4, 4) @ x.reshape(4, 4), (_ints(torch.int32),))
    yield Row("bool_sums", lambda x: (x.sum(), x.any(), x.all(), x.prod()), (torch.tensor([True, True, False, True]),))
    flags = torch.tensor([True, True, False, False])
    yield Row("bool_arithmetic", lambda x, y: (x + y, x * y, x & y, x ^ y, ~x, x < y), (flags, flags.roll(1)))
    yield Row("bool_bitwise_not", lambda x: torch.bitwise_not(x), (flags,))


def _rounding() -> Iterator[Row]:
    halves = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 8388609.0, -8388609.0, 1e20, 4194304.5])
    x = torch.cat([halves, FLOATS])
    for name in ("round", "trunc", "ceil", "floor", "sign", "sgn", "abs", "neg", "frac"):
        yield Row(name, getattr(torch, name), (x,), EXACT, zeros=name not in ("trunc", "frac"))
    yield Row(
        "round_decimals", lambda x: torch.round(x, decimals=1), (torch.tensor([0.25, 0.35, -0.25, 1.05, inf, nan]),)
    )
    yield Row(
        "is", lambda x: (x.isnan(), x.isinf(), x.isfinite(), torch.isposinf(x), torch.isneginf(x), x.signbit()), (x,)
    )
    yield Row("compare", lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y), (LEFT, RIGHT))
    yield Row("compare_with_a_number", lambda x: (x < 1, x <= 1.0, x > -inf, x >= inf, x == 0, x != 0), (FLOATS,))
    three = torch.full((), 3.0)
    yield Row("compare_a_constant", lambda x: (x, torch.full((), 3.0) < 0, torch.full((), 3.0) >= 0), (three,))
    yield Row("isclose", lambda x, y: (x.isclose(y), x.isclose(y, equal_nan=True)), (LEFT, RIGHT))
    yield Row("equal_nan", lambda x: x == x, (FLOATS,))
    yield Row("where", lambda x: (torch.where(x > 0, x, -x), torch.where(x.isnan(), 0.0, x)), (FLOATS,), EXACT)
    yield Row("masked_fill", lambda x: x.masked_fill(x < 0, -inf), (FLOATS,), EXACT)
    yield Row("nan_to_num", lambda x: (x.nan_to_num(), x.nan_to_num(1.0, 2.0, -2.0)), (FLOATS,), EXACT)
    yield Row("nansum", lambda x: x.nansum(), (torch.tensor([1.0, nan, 2.0]),))
    casts = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 2.9, -2.9, 100.0, -100.0, 126.7, -127.9])
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.bool):
        yield Row(f"float_to_{_short(dtype)}", lambda x, d=dtype: x.to(d), (casts,))
        yield Row(f"half_to_{_short(dtype)}", lambda x, d=dtype: x.to(d), (casts.half(),))
    yield Row(
        "big_float_to_int", lambda x: x.to(torch.int32), (torch.tensor([2147483520.0, -2147483648.0, 16777217.0]),)
    )
    yield Row("big_float_to_i64", lambda x: x.to(torch.int64), (torch.tensor([9.223371e18, -9.223372e18, 1e15]),))
    yield Row("to_bool", lambda x: x.bool(), (FLOATS,))
    yield Row("to_half", lambda x: x.half(), (FLOATS,), EXACT)
    yield Row("to_bfloat16", lambda x: x.bfloat16(), (FLOATS,), EXACT)
    yield Row("half_to_float", lambda x: x.float(), (FLOATS.half(),), EXACT)
    yield Row(
        "logical", lambda x, y: (x.logical_and(y), x.logical_or(y), x.logical_xor(y), x.logical_not()), (LEFT, RIGHT)
    )
    yield Row("logical_xor_of_a_number", lambda x: x.logical_xor(torch.tensor(0.0)), (FLOATS,))
    yield Row("any_all", lambda x: (x.any(1), x.all(1), x.any(), x.all()), (ROWS_OF_FLOATS,))
    yield Row("float_arithmetic", lambda x, y: (x + y, x - y, x * y), (LEFT, RIGHT))
    yield Row("addcdiv", lambda x, y: torch.addcdiv(x, x, y, value=2.0), (LEFT, RIGHT))
    yield Row("addcmul", lambda x, y: torch.addcmul(x, x, y, value=2.0), (LEFT, RIGHT))
    yield Row("lerp", lambda x, y: torch.lerp(x, y, 0.25), (DIVIDEND, DIVISOR), (2e-5, 1e-5))
    yield Row("heaviside", lambda x: torch.heaviside(x, torch.tensor(0.5)), (FLOATS,))


def _reductions() -> Iterator[Row]:
    x = ROWS_OF_FLOATS
    yield Row("sum", lambda x: (x.sum(1), x.sum()), (x,))
    yield Row("prod", lambda x: x.prod(1), (x,))
    yield Row("mean", lambda x: (x.mean(1), x.mean()), (x,))
    yield Row("cumsum", lambda x: x.cumsum(1), (x,))
    yield Row("cumprod", lambda x: x.cumprod(1), (x,))
    yield Row("norm", lambda x: (x.norm(dim=1), torch.linalg.vector_norm(x, inf, dim=1), x.norm(1, 1)), (x,))
    constant = torch.full((2, 5), 3.3)
    yield Row("variance_of_constants", lambda x: (x.var(1), x.std(1), x.var(1, correction=0)), (constant,), (0, 1e-12))
    yield Row("variance_of_one", lambda x: (x.var(1), x.std(1), x.var(1, correction=0)), (torch.ones(2, 1),))
    yield Row("variance_far_from_zero", lambda x: x.var(1), (torch.tensor([[1e4, 1e4 + 1, 1e4 + 2]]),))
    yield Row("layer_norm_of_constants", lambda x: F.layer_norm(x, (5,)), (constant,), (0, 1e-3))
    yield Row("empty", lambda x: (x.sum(1), x.prod(1), x.mean(1), x.any(1), x.all(1)), (torch.ones(2, 0),))
    yield Row("sort", lambda x: tuple(x.sort(1)), (x,), EXACT, zeros=False)
    yield Row("sort_descending", lambda x: tuple(x.sort(1, descending=True)), (x[:-1],), EXACT)
    yield Row("sort_stable", lambda x: tuple(x.sort(stable=True, dim=1)), (x,), EXACT)
    yield Row("argsort", lambda x: x.argsort(dim=1, stable=True), (x,))
    distinct = torch.tensor([[nan, 3.0, inf, 1.0], [-inf, 2.0, nan, 5.0]])
    yield Row("topk", lambda x: tuple(x.topk(2, 1)), (distinct,), EXACT)
    yield Row("topk_smallest", lambda x: tuple(x.topk(2, 1, largest=False)), (distinct,), EXACT)
    yield Row("kthvalue", lambda x: tuple(x.kthvalue(2, 1)), (distinct,), EXACT)
    yield Row("median", lambda x: x.median(), (distinct[:, 1:2],), EXACT)


def _indexing() -> Iterator[Row]:
    x = torch.arange(12.0).reshape(4, 3)
    index = torch.tensor([-1, 0, -3, 2])
    yield Row("index_negative", lambda x, i: (x[i], x[:, i[:2]]), (x, index), EXACT)
    yield Row("index_pair_negative", lambda x, i: x[i, i.clamp(-3, 2)], (x, index), EXACT)
    yield Row("index_select", lambda x, i: x.index_select(0, i), (x, index.abs() % 4), EXACT)
    yield Row("select_negative", lambda x: (x[-1], x[..., -2], x[-3:-1], x[::2]), (x,), EXACT)
    yield Row("gather", lambda x, i: x.gather(0, i[:, None]), (x, index % 4), EXACT)
    yield Row("embedding", lambda i, w: F.embedding(i, w, padding_idx=0), (index % 4, x), EXACT)
    yield Row("index_i32", lambda x, i: x[i], (x, index.int()), EXACT)
    yield Row("index_put_negative", lambda x, i: x.index_put((i,), torch.tensor(7.0)), (x, index), EXACT)
    yield Row("take", lambda x, i: torch.take(x, i), (x, index), EXACT)
    among = torch.tensor([[1.0, inf, -0.0], [-inf, 2.0, nan], [nan, -0.0, -3.0]])
    yield Row("diagonal", lambda x: (x.diagonal(), torch.diag(x, -1), x.unfold(0, 2, 1)), (among,), EXACT)
    yield Row("gather_nan", lambda x, i: x[i], (FLOATS, index), EXACT)


def _half(dtype: torch.dtype) -> Iterator[Row]:
    """Operators that eager accumulates in float32: the tolerance is one unit in the last place."""
    kind = _short(dtype)
    unit = (torch.finfo(dtype).eps, 1e-7)
    long = torch.full((1, 4096), 0.3, dtype=dtype)
    mixed = torch.linspace(-1, 3, 2048).reshape(2, 1024).to(dtype)
    large = torch.full((1, 64), 3000.0, dtype=dtype)
    yield Row(f"sum_{kind}", lambda x: (x.sum(1), x.sum()), (long,), unit)
    yield Row(f"sum_ones_{kind}", lambda x: x.sum(1), (torch.ones(1, 5000, dtype=dtype),), unit)
    yield Row(f"mean_{kind}", lambda x: (x.mean(1), x.mean()), (mixed,), unit)
    yield Row(f"mean_of_large_{kind}", lambda x: x.mean(1), (large,), unit)
    yield Row(f"sum_large_cancel_{kind}", lambda x: torch.cat([x, -x], 1).sum(1), (large,), unit)
    yield Row(f"prod_{kind}", lambda x: x.prod(1), (torch.full((1, 8), 1.3, dtype=dtype),), (unit[0] * 4, 0))
    yield Row(f"cumsum_{kind}", lambda x: x.cumsum(1), (long,), unit)
    yield Row(f"var_{kind}", lambda x: (x.var(1), x.std(1)), (mixed,), unit)
    yield Row(f"norm_{kind}", lambda x: (x.norm(dim=1), torch.linalg.vector_norm(x, 2, 1)), (large,), unit)
    yield Row(f"matmul_{kind}", lambda x: x @ x.t(), (long,), unit)
    yield Row(f"matmul_mixed_{kind}", lambda x: x @ x.t(), (mixed,), (unit[0] * 2, 1e-2))
    yield Row(f"linear_{kind}", lambda x: F.linear(x, x, x[0, :1]), (long,), unit)
    yield Row(f"bmm_{kind}", lambda x: x[None] @ x.t()[None], (long,), unit)
    yield Row(f"mv_{kind}", lambda x: x @ x[0], (long,), unit)
    yield Row(f"dot_{kind}", lambda x: torch.dot(x[0], x[0]), (long,), unit)
    image = torch.full((1, 64, 8, 8), 0.3, dtype=dtype)
    kernel = torch.full((1, 64, 5, 5), 0.3, dtype=dtype)
    yield Row(f"conv_{kind}", F.conv2d, (image, kernel), unit)
    yield Row(f"avg_pool_{kind}", lambda x: F.avg_pool2d(x, 8), (image * 1000,), unit)
    yield Row(f"global_avg_pool_{kind}", lambda x: F.adaptive_avg_pool2d(x, 1), (image * 1000,), unit)
    yield Row(f"softmax_{kind}", lambda x: x.softmax(1), (mixed,), unit)
    yield Row(f"softmax_flat_{kind}", lambda x: x.softmax(1), (long,), unit)
    yield Row(f"log_softmax_{kind}", lambda x: x.log_softmax(1), (mixed,), unit)
    yield Row(f"logsumexp_{kind}", lambda x: x.logsumexp(1), (mixed,), unit)
    yield Row(f"layer_norm_{kind}", lambda x: F.layer_norm(x, (1024,)), (mixed,), (unit[0], 1e-3))
    yield Row(f"rms_norm_{kind}", lambda x: F.rms_norm(x, (64,)), (large,), unit)
    yield Row(f"group_norm_{kind}", lambda x: F.group_norm(x, 2), (mixed.reshape(2, 8, 128),), (unit[0] * 2, 2e-3))
    yield Row(
        f"attention_{kind}",
        lambda x: F.scaled_dot_product_attention(x, x, x),
        (mixed.reshape(1, 64, 32),),
        (unit[0] * 2, 1e-3),
    )
    yield Row(f"cdist_{kind}", lambda x: (x - x.flip(1)).pow(2).sum(1), (mixed,), unit)
    yield Row(f"gelu_{kind}", lambda x: (F.gelu(x), F.gelu(x, approximate="tanh")), (mixed,), (unit[0], 1e-4))
    yield Row(
        f"activations_{kind}",
        lambda x: (F.silu(x), x.sigmoid(), x.tanh(), F.softplus(x)),
        (mixed,),
        (unit[0] * 2, 1e-4),
    )
    edge = FLOATS.to(dtype)
    yield Row(f"exp_log_{kind}", lambda x: (x.exp(), x.log(), x.rsqrt(), x.expm1(), x.log1p()), (edge,), unit)
    yield Row(
        f"relu_clamp_{kind}",
        lambda x: (x.relu(), x.clamp(-1, 1), F.relu6(x), x.clamp(min=0.5)),
        (edge,),
        EXACT,
        zeros=False,
    )
    yield Row(f"pow_{kind}", lambda x: (x**2, x**3, x**0.5, x**1.5), (mixed.abs(),), (unit[0] * 2, 1e-6))
    yield Row(
        f"div_{kind}", lambda x, y: (x / y, x % y, x // y), (DIVIDEND.to(dtype), DIVISOR.to(dtype)), unit, zeros=False
    )
    yield Row(f"to_i32_{kind}", lambda x: x.to(torch.int32), (torch.tensor([-2.5, 2.5, 0.9, -0.9], dtype=dtype),))
    yield Row(
        f"max_{kind}", lambda x: (x.amax(1), x.max(1).values, x.argmax(1)), (ROWS_OF_FLOATS.to(dtype),), zeros=False
    )


def _mixed_dtypes() -> Iterator[Row]:
    """Operands of different dtypes, and numbers that a dtype cannot hold."""
    tenths, wide = torch.tensor([0.1, 0.2, 0.3, inf, 3.4028235e38]), torch.tensor([256, 2**33, -(2**33), 2**40, 0])
    bools, bytes_ = torch.tensor([True, False, True, False, True]), torch.tensor([255, 128, 1, 0, 7], dtype=torch.uint8)

    def compared(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x < y, x <= y, x == y, x != y, x > y, x >= y

    yield Row("compare_bool_i64", compared, (bools, wide))
    yield Row("compare_u8_i8", compared, (bytes_, torch.tensor(-1, dtype=torch.int8)))
    yield Row("compare_tenths", lambda x: (x > 0.1, x >= 0.2, x == 0.3, x != 0.1, x < 1e300, x <= 0.1), (tenths,))
    yield Row("compare_half_tenths", lambda x: (x > 0.1, x >= 0.2, x == 0.3, x < 1e300), (tenths.half(),))
    yield Row("compare_u8_numbers", lambda x: (x >= -1, x < -1, x == -1), (bytes_,))
    yield Row("clamp_wide_bounds", lambda x: (x.clamp(min=2**31), x.clamp(-(2**33) - 1, 2**33 + 1)), (wide,))
    yield Row("shift_keeps_dtype", lambda x, y: (x << y, x & y), (bytes_, torch.tensor(1, dtype=torch.int32)))
    yield Row("bitwise_numbers", lambda x: (x | 5, x ^ (2**40), x & -2, x | True), (wide,))
    yield Row("where_mixed", lambda c, x: (torch.where(c, x, wide), torch.where(c, bytes_, wide)), (bools, tenths))
    yield Row("pow_mixed", lambda x, b: (x**b, b ** x.abs(), True**x, 2 ** x.abs()), (wide.clamp(-64, 64), bools))
    yield Row("fmod_i16_f16", torch.fmod, (torch.tensor([32767] * 4, dtype=torch.int16), tenths[:4].half() + 2))
    negative_nan = torch.tensor([-4194304, 2143289344], dtype=torch.int32).view(torch.float32)
    signs = torch.cat([negative_nan, torch.tensor([-0.0, 0.0, -inf])])
    yield Row("signbit_of_nan", torch.signbit, (signs,))
    yield Row("copysign_of_nan", lambda s, b: (torch.copysign(tenths, s), torch.copysign(b, s)), (signs, bools), EXACT)
    floats = torch.tensor([0.0, -0.0, 1.0, -2.5, 3.4028235e38, 1.1754944e-38, 1e-45, -1e-40, inf, -inf])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        name, x = {4: "f32"}.get(dtype.itemsize) or _short(dtype), floats.to(dtype)
        yield Row(f"view_{name}_as_i8", lambda x: x.view(torch.int8), (x,))
        yield Row(f"view_{name}_as_i16", lambda x: x.view(torch.int16), (x,))
        yield Row(f"view_i8_as_{name}", lambda x, d=dtype: x.view(d), (x.view(torch.int8),), EXACT)
    yield Row("view_i32_as_i64", lambda x: (x.view(torch.int64), x.view(torch.uint8)), (_ints(torch.int32),))
    large = torch.tensor([448.0, 465.0, 1e5, -inf, 0.0, -0.0, 1e-3, 17.3])
    yield Row("to_e4m3fn", lambda x: (x.to(torch.float8_e4m3fn).float(), x.to(torch.float8_e5m2).half()), (large,))
    yield Row("gelu_tanh_of_inf", lambda x: F.gelu(x, approximate="tanh"), (torch.tensor([inf, -inf, nan]),))
    poles = torch.tensor([0.0, -0.0, inf, -inf, nan, -1.0, 1.5])
    yield Row("digamma_of_poles", torch.digamma, (poles,))
    yield Row("atanh_of_zeros", lambda x, b: (torch.atanh(x), torch.atanh(b)), (torch.tensor([0.0, -0.0]), bools))
    yield Row("divide_by_zero", lambda x: (x % 0.0, torch.fmod(x, -0.0), x // 0.0), (poles,))


def _short(dtype: torch.dtype) -> str:
    return {torch.float16: "f16", torch.bfloat16: "bf16", torch.bool: "bool"}.get(
        dtype
    ) or f"i{torch.iinfo(dtype).bits}"


ROWS: tuple[Row, ...] = (
    *_activations(),
    *_clamps(),
    *_extremes(),
    *_softmaxes(),
    *_functions(),
    *_division(),
    *_integers(),
    *_rounding(),
    *_reductions(),
    *_indexing(),
    *_half(torch.float16),
    *_half(torch.bfloat16),
    *_mixed_dtypes(),
)
