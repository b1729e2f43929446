"""Special functions, many per program, to every output type."""

from typing import Any

import mpmath
import pytest
import torch
from torch import nn
from torch.export import Dim

from fx_importer import OutputType, lower
from tests.e2e.harness import Case, check, table

S = torch.special


class Gamma(nn.Module):
    def forward(self, x: Any, p: Any) -> Any:
        return torch.lgamma(x), torch.digamma(p), torch.polygamma(1, p), torch.mvlgamma(p + 2, 3), S.zeta(p + 1, p)


class Errors(nn.Module):
    def forward(self, x: Any, p: Any) -> Any:
        return torch.erfc(x), S.erfcx(p), torch.erfinv(x / 10), S.ndtri(p / 20), S.log_ndtr(x), S.ndtr(x)


class Bessel(nn.Module):
    def forward(self, x: Any, p: Any) -> Any:
        return S.bessel_j0(x), S.bessel_j1(x), S.bessel_y0(p), S.bessel_y1(p), S.airy_ai(x), S.spherical_bessel_j0(x)


class ModifiedBessel(nn.Module):
    def forward(self, x: Any, p: Any) -> Any:
        first = torch.i0(x), S.i0e(x), S.i1(x), S.i1e(x), S.modified_bessel_i0(x), S.modified_bessel_i1(x)
        second = S.modified_bessel_k0(p), S.modified_bessel_k1(p), S.scaled_modified_bessel_k0(p)
        return *first, *second, S.scaled_modified_bessel_k1(p)


class Polynomials(nn.Module):
    """A degree in a tensor makes a loop; a scalar degree is unrolled."""

    def forward(self, x: Any, p: Any) -> Any:
        n, x = torch.floor(p), x / 8
        return S.hermite_polynomial_he(x, n), S.laguerre_polynomial_l(x, n), S.chebyshev_polynomial_t(x, 5)


class IncompleteGamma(nn.Module):
    def forward(self, x: Any, p: Any) -> Any:
        return torch.igamma(p, x), torch.igammac(p, x.abs())


class Parts(nn.Module):
    """Zeros of both signs included."""

    def forward(self, x: Any, p: Any) -> Any:
        x = torch.cat([x, torch.zeros(1), -torch.zeros(1)])
        whole = torch.arange(-5, 11)
        y = x.flip(0)
        integers = torch.gcd(whole, torch.tensor(6)), torch.lcm(whole, torch.tensor(4))
        return *torch.frexp(x), torch.nextafter(x, y), torch.copysign(x, y), torch.signbit(x), *integers


class Logarithms(nn.Module):
    def forward(self, x: Any, p: Any) -> Any:
        sums = torch.logcumsumexp(x * 1000, 0), torch.logaddexp(x, p), torch.logaddexp2(x, p)
        return *sums, torch.log1p(p), torch.expm1(x), torch.log2(p), torch.log10(p), torch.exp2(x)


class Trigonometry(nn.Module):
    def forward(self, x: Any, p: Any) -> Any:
        h = x / 10
        inverse = torch.atan(x), torch.atan2(x, h - 0.3), torch.asin(h), torch.acos(h)
        return *inverse, torch.asinh(x), torch.acosh(p + 1), torch.atanh(h), torch.sinh(x), torch.cosh(x)


class Distances(nn.Module):
    def forward(self, x: Any, p: Any) -> Any:
        rows = torch.stack([x, p], 1)
        larger = torch.fmax(x, torch.tensor(1.0)), torch.fmin(x, p), torch.hypot(x, p), torch.angle(x)
        pairs = torch.cdist(rows, rows[:3]), torch.nn.functional.pdist(rows), torch.dist(x, p, 3)
        norms = torch.linalg.norm(rows), torch.linalg.norm(rows, 1), torch.linalg.vector_norm(rows, 3, 0)
        return *larger, *pairs, *norms, torch.isfinite(torch.log(x)), torch.ops.aten.rsub.Tensor(x, p)


def inputs() -> tuple[Any, ...]:
    return torch.linspace(-7.3, 9.1, 14), torch.linspace(0.1, 9.1, 14)


FAMILIES = (
    *(Gamma, Errors, Bessel, ModifiedBessel, Polynomials),
    *(IncompleteGamma, Parts, Logarithms, Trigonometry, Distances),
)


@pytest.mark.slow_rows(
    "IncompleteGamma",
    "(Gamma|Parts|Bessel|Polynomials)-tosa",
    "(Bessel|Parts|Polynomials)-stablehlo",
    "^Errors-stablehlo$",
    "^Gamma-stablehlo$",
    "^Errors-tosa$",
    "^(ModifiedBessel|Errors)-linalg",
    "^(Parts|Distances)-linalg",
)
@table(
    *(Case(family.__name__, lambda family=family: (family(), inputs()), tolerance=(2e-5, 2e-6)) for family in FAMILIES)
)
def test_special(case: Case, output_type: OutputType) -> None:
    check(case, output_type)


ROWS = Dim("rows")


@table(
    Case(
        "a loop of dynamic sizes",
        lambda: (Polynomials(), inputs()),
        dynamic_shapes=({0: ROWS}, {0: ROWS}),
        others=lambda: [(torch.randn(3), torch.rand(3))],
    )
)
def test_special_of_dynamic_sizes(case: Case, output_type: OutputType) -> None:
    check(case, output_type)


@pytest.mark.slow_rows("stablehlo")
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo"])
def test_bessel_and_airy_functions_of_float64(output_type: str) -> None:
    """Compare with mpmath: eager's are off by up to 8e-7, and 3e-6 (Airy), in float64 too."""
    x, z = torch.linspace(0.1, 40.1, 81, dtype=torch.float64), torch.linspace(-9.7, 9.3, 39, dtype=torch.float64)
    results = lower(lambda x, z: (S.bessel_j0(x), S.bessel_j1(x), S.bessel_y0(x), S.bessel_y1(x), S.airy_ai(z)), x, z,
                    output_type=output_type).run(x, z)  # fmt: skip
    functions = [
        *(lambda v, f=f, n=n: f(n, v) for f in (mpmath.besselj, mpmath.bessely) for n in (0, 1)),
        mpmath.airyai,
    ]
    for ours, function, points in zip(results, functions, (x, x, x, x, z), strict=True):
        expected = torch.tensor([float(function(each)) for each in points.tolist()], dtype=torch.float64)
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-14)
