"""Incomplete gamma functions, gcd and lcm, frexp, norms, and elementary functions that TOSA lacks, against eager."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fx_importer.decompositions.elementwise import arithmetic, clamp, float_classification, signs
from fx_importer.decompositions.reduction import norms
from fx_importer.decompositions.special import float_parts, gcd_lcm, incomplete_gamma, logarithms, trigonometry

INF, NAN = math.inf, math.nan
EDGES = torch.tensor([0.0, -0.0, 1, -1, 0.5, -2.5, 1e30, -1e30, 1e-30, -1e-30, INF, -INF, NAN])
SMALL = torch.logspace(-20, -0.01, 200, dtype=torch.float64)
AROUND = torch.cat([-SMALL, SMALL, torch.linspace(-70, 70, 501, dtype=torch.float64)])
INSIDE = torch.cat([-SMALL, SMALL, 1 - SMALL / 10, SMALL / 10 - 1])


def pairs(values: Tensor) -> tuple[Tensor, Tensor]:
    a, b = torch.meshgrid(values, values, indexing="ij")
    return a, b


@pytest.mark.parametrize(
    "rule, eager, points, error",
    [
        (trigonometry.atan, torch.atan, AROUND, 3e-7),
        (trigonometry.asin, torch.asin, INSIDE, 4e-7),
        (trigonometry.acos, torch.acos, INSIDE, 4e-7),
        (trigonometry.asinh, torch.asinh, AROUND, 4e-7),
        (trigonometry.acosh, torch.acosh, 1 + AROUND.abs(), 4e-7),
        (trigonometry.atanh, torch.atanh, INSIDE, 4e-7),
        (trigonometry.sinh, torch.sinh, AROUND, 4e-7),
        (trigonometry.cosh, torch.cosh, AROUND, 3e-7),
        (logarithms.log1p, torch.log1p, torch.cat([INSIDE, AROUND.abs()]), 4e-7),
        (logarithms.expm1, torch.expm1, AROUND, 4e-7),
        (logarithms.tosa_exp2, torch.exp2, AROUND, 4e-7),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_elementary_functions(rule: Any, eager: Any, points: Tensor, error: float) -> None:
    x = points.float()
    expected = eager(x.double())
    known = expected.isfinite() & (expected != 0)
    assert ((rule(x).double() - expected).abs() / expected.abs())[known].max() < error
    assert_close(rule(EDGES), eager(EDGES), rtol=1e-6, atol=1e-7, equal_nan=True)
    assert_close(rule(torch.tensor([0, 1])), eager(torch.tensor([0, 1])), equal_nan=True)


def test_logarithms_of_other_bases() -> None:
    for rule, eager in ((logarithms.log2, torch.log2), (logarithms.log10, torch.log10)):
        assert_close(rule(AROUND.float()), eager(AROUND.float()), equal_nan=True)
        assert_close(rule(EDGES), eager(EDGES), equal_nan=True)


@pytest.mark.parametrize(
    "rule, eager",
    [
        (trigonometry.atan2, torch.atan2),
        (logarithms.logaddexp, torch.logaddexp),
        (logarithms.logaddexp2, torch.logaddexp2),
        (trigonometry.hypot, torch.hypot),
        (clamp.fmax, torch.fmax),
        (clamp.fmin, torch.fmin),
    ],
    ids=["atan2", "logaddexp", "logaddexp2", "hypot", "fmax", "fmin"],
)
def test_binary_functions(rule: Any, eager: Any) -> None:
    for a, b in (pairs(EDGES), (torch.randn(50), torch.randn(50, 1))):
        assert_close(rule(a, b), eager(a, b), equal_nan=True)


def test_the_sign_of_zero() -> None:
    a, b = pairs(torch.tensor([0.0, -0.0, 1.0, -1.0]))
    signbit, copysign, *_ = signs.SIGNS
    assert_close(trigonometry.atan2(a, b).signbit(), torch.atan2(a, b).signbit())
    assert_close(copysign(a, b).signbit(), torch.copysign(a, b).signbit())
    assert_close(signbit(EDGES), torch.signbit(EDGES))
    assert_close(signbit(torch.tensor([-1, 0])), torch.tensor([True, False]))
    assert_close(signbit(torch.tensor([1, 0], dtype=torch.uint8)), torch.tensor([False, False]))


def test_incomplete_gamma() -> None:
    """Near and far from where the two methods meet, for whole and other orders, both shares."""
    a, x = pairs(torch.cat([torch.logspace(-3, 3, 31), torch.tensor([1.0, 2, 3, 1.9953, 20])]))
    for rule, eager in ((incomplete_gamma.igamma, torch.igamma), (incomplete_gamma.igammac, torch.igammac)):
        assert_close(rule(a, x), eager(a.double(), x.double()).float(), rtol=0, atol=2e-6)
        assert_close(rule(a.double(), x.double()), eager(a.double(), x.double()), rtol=0, atol=1e-9)
        edges = pairs(torch.tensor([0.0, -1, 1, 2.5, INF, 1e-20]))
        assert_close(rule(*edges), eager(*edges), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_gcd_and_lcm(dtype: torch.dtype) -> None:
    least = 0 if dtype is torch.uint8 else -100
    a, b = torch.randint(least, 100, (200,)).to(dtype), torch.randint(least, 100, (3, 1)).to(dtype)
    b[0] = 0
    assert_close(gcd_lcm.gcd(a, b), torch.gcd(a, b))
    assert_close(gcd_lcm.lcm(a, b), torch.lcm(a, b))


BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}


@pytest.mark.parametrize("dtype", BITS, ids=str)
def test_nextafter_and_frexp_of_any_bits(dtype: torch.dtype) -> None:
    bits = BITS[dtype]
    info = torch.finfo(dtype)
    some = torch.randint(torch.iinfo(bits).min, torch.iinfo(bits).max, (20000,), dtype=bits).view(dtype)
    least = info.smallest_normal * info.eps
    edges = torch.tensor([0.0, -0.0, 1, -1, 2, INF, -INF, NAN, info.max, info.tiny, info.tiny * 2, least], dtype=dtype)
    a, b = pairs(edges)
    x, y = torch.cat([some, a.flatten()]), torch.cat([some.flip(0), b.flatten()])
    found, expected = float_parts.nextafter(x, y), torch.nextafter(x, y)
    assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert_close(found[~found.isnan()].signbit(), expected[~found.isnan()].signbit())
    for each, wish in zip(float_parts.frexp(x), torch.frexp(x), strict=True):
        assert_close(each, wish, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, INF])
def test_distances(p: float) -> None:
    x, y = torch.randn(5, 3), torch.randn(2, 4, 3)
    assert_close(norms.cdist(y, y, p, None), torch.cdist(y, y, p))
    assert_close(norms.pdist(x, p), torch.pdist(x, p))
    assert_close(norms.dist(x, x[:1], p), torch.dist(x, x[:1], p))
    for dim in (None, 0, (0, 1)):
        axes = [dim] if isinstance(dim, int) else dim
        assert_close(norms.vector_norm(y, p, axes, True), torch.linalg.vector_norm(y, p, dim, True))


def test_classification_and_angles() -> None:
    assert_close(float_classification.isfinite(EDGES), torch.isfinite(EDGES))
    assert_close(float_classification.isfinite(torch.tensor([1])), torch.tensor([True]))
    assert_close(trigonometry.angle(EDGES), torch.angle(EDGES), equal_nan=True)
    assert_close(trigonometry.angle(EDGES.double()), torch.angle(EDGES.double()), rtol=0, atol=0, equal_nan=True)
    assert_close(trigonometry.angle(torch.tensor([-1, 2])), torch.angle(torch.tensor([-1, 2])))
    assert_close(trigonometry.polar(torch.ones(3, 1), torch.randn(2)).abs(), torch.ones(3, 2))
    assert_close(arithmetic.rsub_tensor(torch.ones(2), torch.full((2,), 3.0), alpha=2), torch.ones(2))
