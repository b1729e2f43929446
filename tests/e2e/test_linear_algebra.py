"""Dense linear algebra, as loops, in every output type."""

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from .harness import Case, check, normal, table


def positive(batch: int, size: int) -> Tensor:
    x = normal(batch, size, size)
    return x @ x.mT + torch.eye(size)


def complex_of(*shape: int) -> Tensor:
    return torch.complex(normal(*shape), normal(*shape, seed=1))


def hermitian(batch: int, size: int) -> Tensor:
    x = complex_of(batch, size, size)
    return x + x.mH


def factors(a: Tensor, b: Tensor) -> list[Tensor]:
    return [torch.linalg.solve(a, b), torch.linalg.det(a), *torch.linalg.qr(b)]


def spectra(a: Tensor, b: Tensor) -> list[Tensor]:
    """Return quantities that do not depend on the sign of a vector."""
    values, vectors = torch.linalg.eigh(a)
    return [values, (vectors * values.exp().unsqueeze(-2)) @ vectors.mH, torch.linalg.pinv(b)]


def general_spectra(a: Tensor) -> list[Tensor]:
    """Return quantities that depend neither on the order of eigenvalues nor on the phase of a vector."""
    values, vectors = torch.linalg.eig(a)
    return [values.abs().sort(-1).values, a @ vectors - vectors * values.unsqueeze(-2), vectors.abs().square().sum(-2)]


def indefinite(a: Tensor, b: Tensor) -> list[Tensor]:
    packed, pivots, _ = torch.linalg.ldl_factor_ex(a)
    return [packed, pivots, torch.linalg.ldl_solve(packed, pivots, b)]


@pytest.mark.slow_rows(
    "(general|complex)_spectra",
    "complex_factors",
    "factors-stablehlo",
    "(spectra|indefinite)-(tosa|stablehlo)",
    "^factors-tosa$",
    "^cholesky_of_a_batch_of_any_size-stablehlo$",
    "^cholesky_of_a_batch_of_any_size-tosa$",
    "^inverse_of_a_tensor-tosa$",
    "^inverse_of_a_tensor-stablehlo$",
    "^indefinite-",
    "^spectra-linalg",
    "^factors-linalg",
)
@table(
    Case("inverse_of_a_tensor", lambda: (lambda a: torch.linalg.tensorinv(a), (normal(2, 3, 3, 2),))),
    Case(
        "cholesky_of_a_batch_of_any_size",
        lambda: (lambda a: torch.linalg.cholesky(a), (positive(2, 4),)),
        dynamic_shapes=({0: Dim.DYNAMIC},),
        others=lambda: [(positive(5, 4),)],
    ),
    Case("indefinite", lambda: (indefinite, (normal(2, 4, 4) + normal(2, 4, 4).mT, normal(2, 4, 2)))),
    Case("factors", lambda: (factors, (positive(2, 4), normal(2, 4, 3)))),
    Case("complex_factors", lambda: (factors, (complex_of(2, 3, 3), complex_of(2, 3, 2))), tolerance=(1e-4, 1e-4)),
    Case("complex_spectra", lambda: (spectra, (hermitian(2, 3), complex_of(2, 2, 3))), tolerance=(1e-4, 1e-4)),
    Case("general_spectra", lambda: (general_spectra, (complex_of(2, 3, 3),)), tolerance=(1e-4, 1e-4)),
    Case("spectra", lambda: (spectra, (positive(2, 5), normal(2, 3, 5))), tolerance=(1e-4, 1e-4)),
)
def test_linear_algebra(case, output_type):
    check(case, output_type)
