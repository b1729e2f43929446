"""Elementwise operators, and broadcasting."""

import importlib
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fx_importer import lower

from .harness import TOSA, Case, check, integers, normal, table

FINITE = torch.tensor([-20.0, -3.0, -0.5, -0.0, 0.0, 1e-6, 0.5, 1.5, 2.5, 20.0])
NAN = torch.tensor([float("nan"), 1.0])
EDGES = torch.cat([FINITE, torch.tensor([float("inf"), float("-inf")]), NAN])


def activation(name: str, module: nn.Module, **expected: Any) -> Case:
    return Case(name, lambda: (module, (FINITE,)), **expected)


def of_constants(x: torch.Tensor) -> list[torch.Tensor]:
    """Constant floats, bools and integers with scalars of each kind, which C++ passes fold."""
    zeros, bools = torch.zeros(2) * 1, torch.ones(2) > 0
    constants = (zeros, bools, *map(torch.tensor, ([0.0, 1.0], [True, False], [1, 2])))
    comparisons = (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)
    return [x, *(compare(c, n) for c in constants for n in (0, 1, 1.5, -1.0, True) for compare in comparisons)]


@pytest.mark.slow_rows(
    "^nan_through_activations-tosa$", "^nan_through_hard_activations-tosa$", "^mish-tosa$", "^elu-tosa$"
)
@table(
    activation("relu", nn.ReLU()),
    activation("relu6", nn.ReLU6()),
    activation("leaky_relu", nn.LeakyReLU(0.2)),
    activation("elu", nn.ELU(1.5)),
    activation("gelu", nn.GELU()),
    activation("gelu_tanh", nn.GELU("tanh")),
    activation("silu", nn.SiLU()),
    activation("sigmoid", nn.Sigmoid()),
    activation("hardswish", nn.Hardswish()),
    activation("hardsigmoid", nn.Hardsigmoid()),
    activation("mish", nn.Mish()),
    activation("softplus", nn.Softplus()),
    activation("prelu", nn.PReLU()),
    Case(
        "nan_through_activations",
        lambda: (lambda x: (x.relu(), x.sigmoid(), x.tanh(), F.silu(x), F.softplus(x), F.elu(x), F.gelu(x)), (NAN,)),
    ),
    Case(
        "nan_through_hard_activations",
        lambda: (lambda x: (F.relu6(x), F.hardsigmoid(x), F.hardswish(x)), (NAN,)),
    ),
    Case("glu", lambda: (nn.GLU(), (normal(2, 6),))),
)
def test_activations(case, output_type):
    check(case, output_type)


@pytest.mark.slow_rows(
    "^constants_compared_with_numbers-stablehlo$",
    "^hyperbolic-tosa$",
    "^constants_compared_with_numbers-linalg",
)
@table(
    Case("exponentials", lambda: (lambda x: (x.exp(), x.expm1(), x.exp2(), x.sigmoid()), (EDGES,))),
    Case("logarithms", lambda: (lambda x: (x.log(), x.log1p(), x.log2(), x.log10()), (EDGES,))),
    Case("roots", lambda: (lambda x: (x.sqrt(), x.rsqrt(), x.square()), (EDGES,))),
    Case("trigonometry", lambda: (lambda x: (x.sin(), x.cos(), x.tan(), x.atan()), (EDGES,))),
    Case(
        "hyperbolic",
        lambda: (lambda x: (x.tanh(), x.sinh(), x.cosh(), x.asinh()), (EDGES,)),
    ),
    Case("factors", lambda: (factors_beyond_float16, (torch.tensor([1e-3, 0.5, -6e4, 6e4, 3e-7, 2.0]).half(),))),
    Case("erf", lambda: (torch.erf, (torch.linspace(-4, 4, 101),)), tolerance=(1e-6, 0)),
    Case("constants_compared_with_numbers", lambda: (of_constants, (normal(2),))),
    Case("trunc_of_a_constant", lambda: (lambda x: x + torch.full((2,), 5.5).trunc(), (normal(2),))),
    Case(
        "nan_from_a_bfloat16_constant",
        lambda: (lambda x: (x, torch.full((2, 3), -2.0).bfloat16().sqrt()), (normal(2),)),
    ),
    Case("rounding", lambda: (lambda x: (x.floor(), x.ceil(), x.round(), x.trunc()), (EDGES,))),
    Case("signs", lambda: (lambda x: (x.abs(), x.neg(), x.sign()), (EDGES,))),
    Case(
        "reciprocal_of_zero",
        lambda: (torch.reciprocal, (EDGES,)),
    ),
    Case("arithmetic_of_bools", lambda: (lambda x: ((x > 0) * (x < 1), (x > 0) + (x < -1), (x > 0) * x), (EDGES,))),
    Case("classification", lambda: (lambda x: (x.isnan(), x.isinf()), (EDGES,))),
    Case(
        "isfinite",
        lambda: (torch.isfinite, (EDGES,)),
    ),
    Case("nan_to_num", lambda: (lambda x: x.nan_to_num(1.0, 2.0, 3.0), (EDGES,))),
    Case("clamp", lambda: (lambda x: (x.clamp(-0.5, 1.5), x.clamp(min=0.1), x.clamp(max=0.1)), (FINITE,))),
    Case(
        "clamp_of_nan",
        lambda: (lambda x: (x.clamp(-0.5, 1.5), x.clamp(min=0.1), x.clamp(max=0.1)), (NAN,)),
    ),
)
def test_functions(case, output_type):
    check(case, output_type)


def factors_beyond_float16(x):
    """Multiply and divide by numbers and a tensor of rank 0 that float16 rounds to infinity or zero."""
    return x * 1e5, x / 1e5, x * 1e-9, 1e5 / x, x * torch.tensor(1e5), x * 100_000, x + 1e5


def factors_of_rank_0(x, wide, integer, item, sized):
    """Scale by tensors of one element and numbers: eager rounds them to float16, but for second factors."""
    size = sized.shape[0]
    scaled = x * wide, wide * x, x / wide, wide / x, x * integer, x // wide, x * item.item(), x * size, x / size
    scaled = *scaled, x * integer[None], x[1] * sized
    return *scaled, x + wide, x - integer, x + size, x == integer, F.leaky_relu(x, 1e5)


FACTORS_OF_RANK_0 = (
    torch.tensor([0.5, 1e-3, -6e4, 6e4, torch.inf]).half(),
    *(torch.tensor(1e5), torch.tensor(70_000), torch.tensor(-1e5)),
)


def where_of_equal_branches(c, x):
    """Select among equal branches, which are smaller than the condition, the same or computed twice."""
    return torch.where(c, x, x), torch.where(c, x * 2, x * 2), torch.where(c, x[:1], x[:1]), torch.where(c[:, :1], x, x)


SMALL = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.bool)
PAIR = (normal(2, 3, seed=1), normal(2, 3, seed=2))
INTS = (integers(2, 6, low=-9, high=9), integers(6, low=1, high=5, seed=2))


@pytest.mark.slow_rows(
    "^atan2-tosa$",
    "^divisions_by_complex_zeros-stablehlo$",
    "^integers-tosa$",
    "^small_integers_and_numbers-tosa$",
    "^extremes-tosa$",
    "^divisions_by_complex_zeros-tosa$",
)
@table(
    Case("arithmetic", lambda: (lambda x, y: (x + y, x - y, x * y, x / y), PAIR)),
    Case("alpha", lambda: (lambda x, y: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=0.5)), PAIR)),
    Case("broadcast", lambda: (lambda x, y: x[:, None, :] * y[None, :, :1] + 1, PAIR)),
    Case("powers", lambda: (lambda x: (x**2, x**3, x.abs() ** 1.5, 2**x), (normal(5),))),
    Case("divisions", lambda: (lambda x, y: (x // y, x % y, torch.div(x, y, rounding_mode="trunc")), PAIR)),
    Case("extremes", lambda: (lambda x, y: (torch.maximum(x, y), torch.minimum(x, y)), PAIR)),
    Case(
        "extremes_of_nan",
        lambda: (lambda x, y: (torch.maximum(x, y), torch.minimum(x, y)), (NAN, NAN.flip(0))),
    ),
    Case("comparisons", lambda: (lambda x, y: (x < y, x <= y, x == y, x != y, x > 0.5, x >= y), PAIR)),
    Case("where", lambda: (lambda x, y: torch.where(x > y, x, 0.0), PAIR)),
    Case("where_of_equal_branches", lambda: (where_of_equal_branches, (PAIR[0] > 0, PAIR[1][0]))),
    Case(
        "comparisons_of_real_and_complex_numbers",
        lambda: (
            lambda x, n, z: (x == z, x != z, z != x, n == z, x == 1 + 1j, x != 1 + 0j),
            (torch.tensor([1.0, 0, 2]), torch.tensor([1, 0, 2]), torch.tensor([1 + 0j, 1j, 2 + 1j])),
        ),
    ),
    Case(
        "divisions_by_complex_zeros",
        lambda: (
            lambda z, w: (z / w, z / 0j, torch.addcdiv(z, z, w, value=2), w.reciprocal()),
            (torch.tensor([1 + 2j, -1 + 1j, 3 - 4j]), torch.tensor([0j, 2 + 1j, 0j])),
        ),
    ),
    Case(
        "small_integers_and_numbers",
        lambda: (
            lambda *xs: tuple(y for x in xs for y in (x / 2.5, x / -2, x + True, x > 2**40, x <= 2**31, x == -(2**32))),
            (*(torch.tensor([0, 1, 7]).to(each) for each in SMALL),),
        ),
    ),
    Case("atan2", lambda: (torch.atan2, PAIR)),
    Case("sinc", lambda: (torch.sinc, (torch.tensor([0.0, 1e-42, -1e-38, 1e-20, 0.5, -3.3, math.inf, math.nan]),))),
    Case("interpolation", lambda: (lambda x, y: (x.lerp(y, 0.3), torch.addcmul(x, x, y, value=0.5)), PAIR)),
    Case("logic", lambda: (lambda x, y: ((x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > 0)), PAIR)),
    Case("integers", lambda: (lambda x, y: (x + y, x * y, x // y, x % y, x / y, -x, x.abs()), INTS)),
    Case("bits", lambda: (lambda x, y: (x & y, x | y, x ^ y, ~x), INTS)),
    Case(
        "shifts_and_clamps_that_broadcast",
        lambda: (
            lambda x, n, s: (n << s, n >> s, torch.clamp_min(x, x[0]), torch.clamp_max(x[:1], x)),
            (normal(3, 2), integers(3, 1, low=-9, high=9), torch.tensor([1, 2])),
        ),
    ),
    Case(
        "shifts",
        lambda: (lambda x, y: (x << y, x >> y), INTS),
    ),
    Case("integer_and_float", lambda: (lambda x, y: (x + 1.5, x * y.float(), x > 0.5), INTS)),
    Case("scalars", lambda: (lambda x, n, s: x * n + s, (normal(3), 4, 2.5))),
)
def test_operators(case, output_type):
    check(case, output_type)


@pytest.mark.slow_rows(
    "^bits_of_dynamic_sizes-tosa$",
    "^bits_of_dynamic_sizes-stablehlo$",
    "^repeat_no_times-stablehlo$",
    "^repeat_no_times-tosa$",
    "^repeat_no_elements-tosa$",
    "^factors_of_rank_0-(tosa|stablehlo)",
)
@table(
    Case("fma", lambda: (_fma, (normal(3), normal(3, seed=2), normal(3, seed=3)))),
    Case(
        "factors_of_rank_0",
        lambda: (factors_of_rank_0, (*FACTORS_OF_RANK_0, torch.full((70_000,), 70_000))),
        dynamic_shapes=(*[None] * 4, {0: torch.export.Dim("n", max=100_000)}),
        others=lambda: [(*FACTORS_OF_RANK_0, torch.full((size,), 70_000)) for size in (3, 1)],
    ),
    Case(
        "bits_of_dynamic_sizes",
        lambda: (lambda x: (x.view(torch.int16), x.signbit(), torch.copysign(x.abs(), x)), (normal(4, 6),)),
        dynamic_shapes=({0: torch.export.Dim("n")},),
        others=lambda: [(normal(3, 6),)],
    ),
    Case(
        "repeat_no_times",
        lambda: (lambda x: (x.repeat(0, 2), x.repeat(2, 0), x.repeat(0, 1, 1)), (normal(3, 4),)),
        dynamic_shapes=({0: torch.export.Dim("n")},),
        others=lambda: [(normal(5, 4),)],
        fails={TOSA: "torch.vtensor.literal"},
    ),
    Case(
        "repeat_no_elements",
        lambda: (lambda x: (x.repeat(2, 1, 1), x.tile(3, 2)), (torch.zeros(4, 0, 3),)),
        dynamic_shapes=({0: torch.export.Dim("n"), 2: torch.export.Dim("m")},),
        others=lambda: [(torch.zeros(5, 0, 6),)],
        fails={TOSA: "elements"},
    ),
)
def test_bits_and_counts(case, output_type):
    check(case, output_type)


def _fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    importlib.import_module("torch._inductor.inductor_prims")  # registers it
    return torch.ops.prims.fma(a, b, c)


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_factors_of_half_precision_are_not_rounded_first(output_type):
    def model(x, y):
        return x * 2049, x / 3.1, 1.3 * y, y / 3.1, x * 0.5

    inputs = normal(8, 8).half(), normal(8, 8, seed=2).bfloat16()
    for ours, eager in zip(lower(model, *inputs, output_type=output_type).run(*inputs), model(*inputs), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)
