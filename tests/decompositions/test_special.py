"""Special functions: the error of each rule, and its values at limits and poles."""

import math
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fx_importer.decompositions.special import SPECIAL
from fx_importer.decompositions.special.chebyshev import Series, series

S = torch.special
aten = torch.ops.aten
RULES = {operator: each for each in SPECIAL for operator in each.operators}


def grid(low: float, high: float) -> Tensor:
    """Return 1001 points, and those near zero by their logarithm."""
    near = torch.logspace(-20, -1, 50, dtype=torch.float64)
    points = torch.cat([torch.linspace(low, high, 1001, dtype=torch.float64), near, -near])
    return points[(points >= low) & (points <= high)]


# The operator, eager's function, the interval, the errors in float32 and float64, and the least magnitude that they are
# relative to.
ERRORS = [
    (aten.lgamma.default, torch.lgamma, (-20.3, 60), (9e-7, 1e-14), 1),
    (aten.digamma.default, torch.digamma, (1e-3, 60), (3e-7, 1e-14), 1),
    (aten.digamma.default, torch.digamma, (-0.95, -0.05), (4e-6, 1e-13), 1),
    (aten.erfc.default, torch.erfc, (-6, 9), (5e-7, 2e-15), 0),
    (aten.special_erfcx.default, S.erfcx, (-9, 50), (5e-7, 1e-14), 0),
    (aten.erfinv.default, torch.erfinv, (-0.99999, 0.99999), (4e-7, 2e-15), 0),
    (aten.special_ndtri.default, S.ndtri, (1e-20, 0.99999), (5e-7, 5e-15), 0),
    (aten.i0.default, torch.i0, (-80, 80), (6e-7, 3e-15), 0),
    (aten.special_modified_bessel_i0.default, S.modified_bessel_i0, (-80, 80), (6e-7, 3e-15), 0),
    (aten.special_i0e.default, S.i0e, (-200, 200), (6e-7, 3e-15), 0),
    (aten.special_i1.default, S.i1, (-80, 80), (2e-6, 3e-15), 0),
    (aten.special_modified_bessel_i1.default, S.modified_bessel_i1, (-80, 80), (2e-6, 3e-15), 0),
    (aten.special_i1e.default, S.i1e, (-200, 200), (2e-6, 3e-15), 0),
    (aten.special_modified_bessel_k0.default, S.modified_bessel_k0, (0, 80), (1e-6, 3e-15), 0),
    (aten.special_modified_bessel_k1.default, S.modified_bessel_k1, (0, 80), (1e-6, 3e-15), 0),
    (aten.special_scaled_modified_bessel_k0.default, S.scaled_modified_bessel_k0, (0, 200), (1e-6, 3e-15), 0),
    (aten.special_scaled_modified_bessel_k1.default, S.scaled_modified_bessel_k1, (0, 200), (1e-6, 3e-15), 0),
    (aten.special_spherical_bessel_j0.default, S.spherical_bessel_j0, (-50, 50), (2e-7, 1e-15), 1),
    # Eager is no better than this.
    (aten.special_bessel_j0.default, S.bessel_j0, (-100, 100), (1e-6, 5e-7), 1),
    (aten.special_bessel_j1.default, S.bessel_j1, (-100, 100), (1e-6, 5e-7), 1),
    (aten.special_bessel_y0.default, S.bessel_y0, (0, 100), (1e-6, 5e-7), 1),
    (aten.special_bessel_y1.default, S.bessel_y1, (0, 100), (1e-6, 1e-6), 1),
    (aten.special_airy_ai.default, S.airy_ai, (-10, 100), (4e-6, 4e-6), 1),
]


def errors_of(result: Tensor, expected: Tensor, least: float) -> float:
    known = expected.isfinite() & (expected.abs() > 1e-36)
    size = expected.abs().clamp(min=least)
    return float(((result.double() - expected).abs() / size)[known].max())


PAIRS = list(dict.fromkeys((row[0], row[1]) for row in ERRORS))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("operator, eager, interval, errors, least", ERRORS, ids=[str(row[0]) for row in ERRORS])
def test_errors(operator: Any, eager: Any, interval: Any, errors: Any, least: float, dtype: torch.dtype) -> None:
    x = grid(*interval).to(dtype)
    result = RULES[operator](x)
    assert result.dtype == dtype
    assert errors_of(result, eager(x.double()), least) < errors[dtype == torch.float64]


EDGES = torch.tensor(
    [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, -3.5, 5, 8, 100, 1e30, -1e30, 1e-30, -1e-30, math.inf, -math.inf, math.nan]
)


@pytest.mark.parametrize("operator, eager", PAIRS, ids=[str(operator) for operator, _ in PAIRS])
def test_limits(operator: Any, eager: Any) -> None:
    """Zeros, poles, infinities, not a number, what overflows: as eager, the sign of zero included."""
    assert_close(RULES[operator](EDGES), eager(EDGES), rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("operator, eager", PAIRS, ids=[str(operator) for operator, _ in PAIRS])
def test_dtypes(operator: Any, eager: Any) -> None:
    """Integers come out in float32; half precision is computed in float32, and rounded once."""
    whole = torch.tensor([1, 2, 3])
    assert_close(RULES[operator](whole), eager(whole), rtol=1e-5, atol=1e-5, equal_nan=True)
    half = torch.tensor([0.125, 0.5, 0.75], dtype=torch.bfloat16)
    assert_close(RULES[operator](half), eager(half.float()).bfloat16(), rtol=8e-3, atol=0)


BY_MPMATH = [
    (aten.special_bessel_j0.default, lambda x: mpmath.besselj(0, x), (0, 60)),
    (aten.special_bessel_j1.default, lambda x: mpmath.besselj(1, x), (0, 60)),
    (aten.special_bessel_y0.default, lambda x: mpmath.bessely(0, x), (0.1, 60)),
    (aten.special_bessel_y1.default, lambda x: mpmath.bessely(1, x), (0.1, 60)),
    (aten.special_airy_ai.default, mpmath.airyai, (-60, 20)),
]


@pytest.mark.parametrize("operator, function, interval", BY_MPMATH, ids=[str(row[0]) for row in BY_MPMATH])
def test_float64_where_eager_is_wrong(operator: Any, function: Any, interval: Any) -> None:
    x = torch.linspace(interval[0], interval[1], 60, dtype=torch.float64)
    assert_close(RULES[operator](x), x.clone().apply_(lambda each: float(function(each))), rtol=0, atol=2e-14)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7])
def test_polygamma(n: int) -> None:
    x = torch.linspace(0.05, 30, 400)
    result = RULES[aten.polygamma.default](n, x)
    assert errors_of(result, torch.polygamma(n, x.double()), 1) < 1e-6
    left = torch.linspace(-9.83, -0.07, 100, dtype=torch.float64)
    assert_close(RULES[aten.polygamma.default](n, left), torch.polygamma(n, left), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("s", [0.5, 1.0, 1.5, 2.0, 3.0, 17.0])
def test_zeta(s: float) -> None:
    q = torch.cat([torch.linspace(-12.3, 40, 500), torch.tensor([0.0, -3, 1e6, math.nan, -math.inf])]).double()
    expected = S.zeta(torch.full_like(q, s), q)
    assert_close(
        RULES[aten.special_zeta.default](torch.full_like(q, s), q), expected, rtol=1e-9, atol=1e-12, equal_nan=True
    )
    positive = q[q > 0.1].float()
    result = RULES[aten.special_zeta.self_scalar](s, positive)
    assert_close(result, S.zeta(s, positive.double()).float(), rtol=1e-6, atol=0, equal_nan=True)


POLYNOMIALS = [
    name
    for kind in "tuvw"
    for name in (f"special_chebyshev_polynomial_{kind}", f"special_shifted_chebyshev_polynomial_{kind}")
] + [
    *("special_hermite_polynomial_h", "special_hermite_polynomial_he"),
    *("special_laguerre_polynomial_l", "special_legendre_polynomial_p"),
]


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name: str) -> None:
    """Of a degree that is a tensor, and of one that is a number; negative ones give 0, parts of one are cut off."""
    packet = getattr(aten, name)
    x = torch.tensor([-1.5, -1.0, -0.3, 0.0, 0.4, 1.0, 2.0], dtype=torch.float64).unsqueeze(1)
    n = torch.tensor([-2.0, -0.5, 0, 1, 2, 3.7, 6, 7, 20], dtype=torch.float64)
    expected = packet(x, n)
    rule = RULES[packet.default]
    assert_close(rule(x, n), expected, rtol=1e-9, atol=1e-9, equal_nan=True)
    for k in (*n.tolist(), 40):
        number = RULES[packet.n_scalar](x, k)
        assert_close(number, packet(x, torch.full_like(x, k)), rtol=1e-6, atol=1e-6, equal_nan=True)
    assert_close(RULES[packet.x_scalar](0.3, n), packet(0.3, n), rtol=1e-9, atol=1e-9)


def test_hermite_polynomials_of_a_degree_beyond_eagers_limit() -> None:
    x, n = torch.tensor([0.0, 0.5]), torch.tensor([129.0, 2.0])
    rule = RULES[aten.special_hermite_polynomial_h.default]
    assert_close(rule(x, n), S.hermite_polynomial_h(x, n), equal_nan=True)
    assert rule(x, 129).isnan().all()


def test_series() -> None:
    """The coefficients are those of the function, and a type with fewer digits needs fewer of them."""
    mpmath.mp.dps = 30
    for x in (1.0625, 1.5, 2.75):
        expected = mpmath.loggamma(x) / ((mpmath.mpf(x) - 1) * (mpmath.mpf(x) - 2))
        assert_close(
            series("LOG_GAMMA")(torch.tensor(x, dtype=torch.float64)).item(), float(expected), rtol=1e-15, atol=0
        )
    assert series("AIRY_MIDDLE")(torch.tensor(0.0)).item() == pytest.approx(0.355028053887817, rel=2e-7)
    assert Series(0, 1, (1.0, 2.0, 1.0))(torch.tensor([0.0, 0.5, 1.0])).tolist() == [0, 0, 4]
