"""Dense linear algebra against eager: values where they are unique, products of factors where they are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fx_importer.decompositions.linalg_dense import cholesky, eig, eigh_svd, ldl, lu, matrix_functions, qr

FLAGS = (False, True)
DTYPES = (torch.float32, torch.float64)
KINDS = (torch.float64, torch.complex128)


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def positive(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    x = normal(*shape, dtype=dtype)
    return x @ x.mH + torch.eye(shape[-1], dtype=x.dtype)


def assert_orthonormal(columns: Tensor) -> None:
    product = columns.mH @ columns
    assert_close(product, torch.eye(product.shape[-1], dtype=product.dtype).expand_as(product))


MATRICES = {
    "square": normal(2, 3, 4, 4),
    "tall": normal(3, 7, 4),
    "wide": normal(3, 7),
    "one": normal(1, 1),
    "column": normal(4, 1),
    "row": normal(1, 4),
    "of rank 2": normal(6, 2) @ normal(2, 6, seed=1),
    "equal": torch.eye(5, dtype=torch.float64).expand(2, 5, 5),
    "zero": torch.zeros(4, 3, dtype=torch.float64),
    "large": normal(4, 4) * 1e200,
    "small": normal(4, 4) * 1e-200,
    "complex": normal(2, 4, 4, dtype=torch.complex128),
    "complex, tall": normal(2, 7, 3, dtype=torch.complex128),
    "complex, wide": normal(3, 6, dtype=torch.complex128),
    "complex, one": normal(1, 1, dtype=torch.complex128),
    "complex, real": normal(3, 3).to(torch.complex128),
    "no columns": normal(2, 3, 0),
    "no rows": normal(0, 3),
    "nothing": normal(0, 0),
    "no batch": normal(0, 3, 3),
}
UNIQUE = {name: a for name, a in MATRICES.items() if name != "of rank 2"}
"""Matrices whose factors do not depend on the rounding of a zero."""
each_of_unique_factors = pytest.mark.parametrize("a", UNIQUE.values(), ids=UNIQUE)
each_matrix = pytest.mark.parametrize("a", MATRICES.values(), ids=MATRICES)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("upper", FLAGS)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 5, 5), (0, 0), (2, 0, 0), (1, 1)])
def test_cholesky(shape: tuple[int, ...], upper: bool, dtype: torch.dtype) -> None:
    a = positive(*shape, dtype=dtype)
    factor = torch.linalg.cholesky(a, upper=upper)
    noise = torch.tril(torch.ones_like(a), -1) if upper else torch.triu(torch.ones_like(a), 1)
    assert_close(cholesky.cholesky_ex(a + noise, upper=upper), tuple(torch.linalg.cholesky_ex(a, upper=upper)))
    assert_close(cholesky.cholesky(a, upper=upper), factor)
    assert_close(cholesky.cholesky_inverse(factor, upper), torch.cholesky_inverse(factor, upper))
    b = normal(*shape[:-1], 2, dtype=dtype)
    assert_close(cholesky.cholesky_solve(b, factor, upper), torch.cholesky_solve(b, factor, upper))


def test_cholesky_names_the_first_pivot_that_is_not_positive() -> None:
    a = torch.stack([torch.diag(torch.tensor(row)) for row in ([1.0, 2.0, 3.0], [1.0, -2.0, -3.0], [1.0, 2.0, 0.0])])
    assert cholesky.cholesky_ex(a)[1].tolist() == torch.linalg.cholesky_ex(a)[1].tolist() == [0, 2, 3]


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize("unit", FLAGS)
@pytest.mark.parametrize("left", FLAGS)
@pytest.mark.parametrize("upper", FLAGS)
def test_triangular_systems(upper: bool, left: bool, unit: bool) -> None:
    a, b = positive(3, 1, 4, 4), normal(2, 4, 3) if left else normal(2, 3, 4)
    how: dict[str, Any] = {"upper": upper, "left": left, "unitriangular": unit}
    assert_close(cholesky.solve_triangular(a, b, **how), torch.linalg.solve_triangular(a, b, **how))
    old = (a[0, 0], upper, left, unit)
    b = normal(4, 3)
    assert_close(cholesky.triangular_solve(b, *old), tuple(torch.triangular_solve(b, *old)))


@each_of_unique_factors
def test_lu(a: Tensor) -> None:
    assert_close(lu.lu_factor_ex(a), tuple(torch.linalg.lu_factor_ex(a)))
    assert_close(lu.lu(a), tuple(torch.linalg.lu(a)))


def test_lu_names_the_first_zero_pivot() -> None:
    a = torch.ones(3, 3)
    found, wanted = lu.lu_factor_ex(a), torch.linalg.lu_factor_ex(a)
    assert_close(found, tuple(wanted))
    assert found[2] == 2


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("adjoint", FLAGS)
@pytest.mark.parametrize("left", FLAGS)
def test_solutions_from_factors(left: bool, adjoint: bool, dtype: torch.dtype) -> None:
    packed, pivots = torch.linalg.lu_factor(normal(2, 5, 5, dtype=dtype))
    b = normal(3, 1, 5, 2, dtype=dtype) if left else normal(3, 1, 2, 5, dtype=dtype)
    how: dict[str, Any] = {"left": left, "adjoint": adjoint}
    assert_close(lu.lu_solve(packed, pivots, b, **how), torch.linalg.lu_solve(packed, pivots, b, **how))


@pytest.mark.parametrize("b", [(5,), (5, 2), (2, 5), (3, 2, 5, 1)], ids=str)
def test_solutions(b: tuple[int, ...]) -> None:
    a = normal(2, 5, 5)
    x = normal(*b)
    if b == (5,):
        a = a[0]
    assert_close(lu.solve(a, x), torch.linalg.solve(a, x))
    assert_close(lu.solve_ex(a, x), tuple(torch.linalg.solve_ex(a, x)))


SQUARES = {name: a for name, a in MATRICES.items() if a.shape[-1] == a.shape[-2]}
each_square = pytest.mark.parametrize("a", SQUARES.values(), ids=SQUARES)


@each_square
def test_determinants(a: Tensor) -> None:
    if not a.numel() or torch.linalg.matrix_rank(a).min() == a.shape[-1]:
        assert_close(lu.slogdet(a), tuple(torch.linalg.slogdet(a)))
        assert_close(lu.inv(a), torch.linalg.inv(a))
        assert_close(lu.logdet(a), torch.logdet(a), equal_nan=True)
    assert_close(lu.det(a), torch.linalg.det(a))


def test_determinant_of_a_singular_matrix() -> None:
    a = torch.diag(torch.tensor([1.0, 0.0, -2.0]))
    assert_close(lu.slogdet(a), tuple(torch.linalg.slogdet(a)))
    assert_close(lu.logdet(a), torch.logdet(a))


@each_of_unique_factors
def test_qr(a: Tensor) -> None:
    assert_close(qr.geqrf(a), tuple(torch.geqrf(a)))
    for mode in ("reduced", "complete", "r"):
        assert_close(qr.qr(a, mode), tuple(torch.linalg.qr(a, mode)))


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("transpose", FLAGS)
@pytest.mark.parametrize("left", FLAGS)
def test_products_of_reflections(left: bool, transpose: bool, dtype: torch.dtype) -> None:
    packed, tau = torch.geqrf(normal(2, 6, 4, dtype=dtype))
    c = normal(2, 6, 3, dtype=dtype) if left else normal(2, 3, 6, dtype=dtype)
    assert_close(qr.ormqr(packed, tau, c, left, transpose), torch.ormqr(packed, tau, c, left, transpose))
    some = tau[..., :3]
    assert_close(qr.householder_product(packed, some), torch.linalg.householder_product(packed, some.contiguous()))


@pytest.mark.parametrize("uplo", ["L", "U"])
@each_square
def test_eigenvalues(a: Tensor, uplo: str) -> None:
    values, vectors = eigh_svd.eigh(a, uplo)
    assert_close(values, torch.linalg.eigvalsh(a, uplo))
    assert_close(eigh_svd.eigh(a, uplo, False)[0], values)
    part = torch.tril(a, -1) if uplo == "L" else torch.triu(a, 1)
    whole = part + part.mH + torch.diag_embed(a.diagonal(dim1=-2, dim2=-1).real)
    assert_close((vectors * values.unsqueeze(-2)) @ vectors.mH, whole)
    assert_orthonormal(vectors)


@pytest.mark.parametrize("full", FLAGS)
@each_matrix
def test_singular_values(a: Tensor, full: bool) -> None:
    u, values, vh = eigh_svd.svd(a, full)
    wanted = torch.linalg.svd(a, full)
    assert [each.shape for each in (u, values, vh)] == [each.shape for each in wanted]
    assert_close(values, wanted.S)
    assert_close(eigh_svd.svd(a, full, False)[1], values)
    size = values.shape[-1]
    assert_close((u[..., :size] * values.unsqueeze(-2)) @ vh[..., :size, :], a)
    assert_orthonormal(u)
    assert_orthonormal(vh.mH)


def spectra(dtype: torch.dtype) -> dict[str, Tensor]:
    size = 24
    basis = torch.linalg.qr(normal(size, size))[0]
    return {
        name: ((basis * values) @ basis.mT).to(dtype)
        for name, values in {
            "graded": torch.logspace(0, -6, size).double(),
            "repeated": torch.arange(size) // 8 + 1.0,
            "of low rank": (torch.arange(size) < 8).double(),
        }.items()
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["graded", "repeated", "of low rank"])
def test_rotations_converge_for_any_spectrum(kind: str, dtype: torch.dtype) -> None:
    a = spectra(dtype)[kind]
    a = a + a.mT
    wanted = torch.linalg.eigvalsh(a.double())
    unit = 16 * torch.finfo(dtype).eps * wanted.max()
    assert (eigh_svd.eigh(a)[0] - wanted).abs().max() < unit
    assert (eigh_svd.svd(a)[1] - wanted.abs().sort(descending=True).values).abs().max() < unit


@pytest.mark.parametrize("size", [2, 5, 33])
def test_errors_in_float32_are_a_few_units(size: int) -> None:
    a = normal(4, size, size, dtype=torch.float32)
    unit = torch.finfo(torch.float32).eps
    symmetric = a + a.mT
    for found, wanted in (
        (eigh_svd.eigh(symmetric)[0], torch.linalg.eigvalsh(symmetric.double())),
        (eigh_svd.svd(a)[1], torch.linalg.svdvals(a.double())),
    ):
        assert (found - wanted).abs().max() <= 8 * unit * wanted.abs().max()


def companion(*coefficients: float) -> Tensor:
    """Return the matrix whose eigenvalues are the roots of the polynomial with these coefficients below the first."""
    size = len(coefficients)
    a = torch.diag(torch.ones(size - 1, dtype=torch.float64), -1)
    a[:, -1] = -torch.tensor(coefficients, dtype=torch.float64)
    return a


GENERAL = {name: a for name, a in SQUARES.items() if name != "of rank 2"} | {
    "ten": normal(3, 10, 10),
    "a cycle, which shifts leave as it is": torch.eye(5, dtype=torch.float64).roll(1, 0),
    "a rotation": torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64),
    "roots 1 to 5": companion(-120.0, 274.0, -225.0, 85.0, -15.0),
    "triangular": torch.triu(normal(4, 4)),
    "in blocks": torch.block_diag(normal(2, 2), normal(3, 3, seed=1)),
    "of several sizes": torch.stack([torch.block_diag(normal(2, 2), normal(1, 1)), normal(3, 3)]),
}


def sorted_along_a_line(values: Tensor) -> Tensor:
    return values.gather(-1, torch.argsort(0.6 * values.real + 0.8 * values.imag, -1))


@pytest.mark.parametrize("a", GENERAL.values(), ids=GENERAL)
def test_eigenvalues_of_any_matrix(a: Tensor) -> None:
    values, vectors = eig.eig(a)
    wanted = torch.linalg.eigvals(a)
    scale = a.abs().amax() if a.numel() else 1.0
    assert values.shape == wanted.shape
    assert_close(sorted_along_a_line(values / scale), sorted_along_a_line(wanted / scale), rtol=1e-9, atol=1e-12)
    assert_close(eig.eigvals(a), values, rtol=1e-9, atol=1e-12 * float(scale))
    assert_close((a.to(vectors.dtype) @ vectors) / scale, vectors * (values / scale).unsqueeze(-2))
    assert_close(torch.linalg.vector_norm(vectors, dim=-2), torch.ones(values.shape, dtype=torch.float64))


def test_vectors_of_a_defective_matrix_are_finite_and_alike() -> None:
    values, vectors = eig.eig(torch.diag(torch.ones(5), 1) + 2 * torch.eye(6))
    assert_close(values, torch.full((6,), 2.0 + 0j))
    assert_close(vectors.abs(), torch.eye(6)[:, :1].expand(6, 6), atol=1e-6, rtol=0)


INDEFINITE = {
    "five": normal(5, 5),
    "a batch": normal(3, 8, 8),
    "one": normal(2, 1, 1),
    "two with nothing on the diagonal": torch.tensor([[0.0, 2.0], [2.0, 0.0]], dtype=torch.float64),
    "of several steps": torch.stack([torch.eye(4, dtype=torch.float64), normal(4, 4)]),
    "nothing": normal(0, 0),
    "no batch": normal(0, 3, 3),
    "complex": normal(2, 6, 6, dtype=torch.complex128),
    "complex, large": normal(4, 4, dtype=torch.complex128) * 1e150,
}


@pytest.mark.parametrize("hermitian", FLAGS)
@pytest.mark.parametrize("a", INDEFINITE.values(), ids=INDEFINITE)
def test_factors_of_an_indefinite_matrix(a: Tensor, hermitian: bool) -> None:
    a = a + (a.mH if hermitian else a.mT)
    wanted = torch.linalg.ldl_factor_ex(a, hermitian=hermitian)
    assert_close(ldl.ldl_factor_ex(a, hermitian=hermitian), tuple(wanted))
    b = normal(*a.shape[:-1], 3, dtype=a.dtype)
    solved = torch.linalg.ldl_solve(wanted.LD, wanted.pivots, b, hermitian=hermitian)
    assert_close(ldl.ldl_solve(wanted.LD, wanted.pivots, b, hermitian=hermitian), solved)


def test_factors_of_zero_name_the_first_pivot() -> None:
    a = torch.zeros(2, 3, 3)
    a[1] = torch.diag(torch.tensor([1.0, 0.0, 2.0]))
    assert_close(ldl.ldl_factor_ex(a), tuple(torch.linalg.ldl_factor_ex(a)))


TOLERANCES = {
    "by default": {},
    "absolute": {"atol": torch.tensor(0.5, dtype=torch.float64)},
    "relative": {"rtol": torch.tensor(0.3, dtype=torch.float64)},
    "a number": {"atol": 0.5},
    "of zero": {"atol": torch.tensor(0.0, dtype=torch.float64)},
}


@pytest.mark.parametrize("tolerance", TOLERANCES.values(), ids=TOLERANCES)
@each_matrix
def test_pseudo_inverses(a: Tensor, tolerance: dict[str, Any]) -> None:
    assert_close(matrix_functions.pinv(a, **tolerance), torch.linalg.pinv(a, **tolerance))
    assert_close(matrix_functions.matrix_rank(a, **tolerance), torch.linalg.matrix_rank(a, **tolerance))
    if a.shape[-1] == a.shape[-2]:
        a = a + a.mH
        assert_close(
            matrix_functions.pinv(a, hermitian=True, **tolerance), torch.linalg.pinv(a, hermitian=True, **tolerance)
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_exponential_in_half_precision_is_rounded_once(dtype: torch.dtype) -> None:
    a = 2 * normal(3, 4, 4).to(dtype)
    assert_close(matrix_functions.matrix_exp(a), torch.linalg.matrix_exp(a.double()).to(dtype))


def test_exponential_of_a_complex_matrix() -> None:
    a = normal(3, 4, 4, dtype=torch.complex128)
    assert_close(matrix_functions.matrix_exp(a), torch.linalg.matrix_exp(a))


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_exponential(dtype: torch.dtype) -> None:
    scales = torch.tensor([0, 1e-3, 0.3, 1, 5, 20, -20], dtype=dtype)
    a = positive(6, 6).to(dtype) / 6 * scales[:, None, None]
    found, wanted = matrix_functions.matrix_exp(a), torch.linalg.matrix_exp(a.double())
    errors = (found - wanted).abs().amax((1, 2)) / wanted.abs().amax((1, 2)).clamp(min=1e-3)
    assert errors.max() < 4e3 * torch.finfo(dtype).eps, errors
    assert matrix_functions.matrix_exp(a[:, :0, :0]).shape == (7, 0, 0)
