"""Rules of matrix products against eager."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from fx_importer.decompositions.matmul import einsum, matmul


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


MATMUL_SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((5, 0, 3), (3, 2)),
]


@pytest.mark.parametrize("a, b", MATMUL_SHAPES)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = torch.randn(a), torch.randn(b)
    assert_close(matmul.matmul(x, y), torch.matmul(x, y))
    assert_close(matmul.matmul(x.long(), y.long()), torch.matmul(x.long(), y.long()))


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 2, 3, 4), (0, 4)])
def test_linear(shape: tuple[int, ...]) -> None:
    x, weight, bias = torch.randn(shape), torch.randn(5, 4), torch.randn(5)
    assert_close(matmul.linear(x, weight, bias), F.linear(x, weight, bias))
    assert_close(matmul.linear(x, weight), F.linear(x, weight))


def test_linear_with_a_weight_of_one_row() -> None:
    x, weight = torch.randn(3, 4), torch.randn(4)
    assert_close(matmul.linear(x, weight), F.linear(x, weight))


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0, 1), (0.5, 2), (1, 0)])
def test_sums_of_products(beta: float, alpha: float) -> None:
    scale: dict[str, Any] = {"beta": beta, "alpha": alpha}
    bias = torch.full((3,), math.nan) if beta == 0 else torch.randn(3)  # a beta of zero drops a NaN
    a, b = torch.randn(2, 4), torch.randn(4, 3)
    assert_close(matmul.addmm(bias, a, b, **scale), torch.addmm(bias, a, b, **scale))
    batches = a.expand(5, 2, 4), b.expand(5, 4, 3)
    assert_close(matmul.baddbmm(bias, *batches, **scale), torch.baddbmm(bias, *batches, **scale))
    assert_close(matmul.addbmm(bias, *batches, **scale), torch.addbmm(bias, *batches, **scale), rtol=1e-4, atol=1e-5)
    matrix, vector = b.t(), b[:, 0]
    assert_close(matmul.addmv(bias, matrix, vector, **scale), torch.addmv(bias, matrix, vector, **scale))


def test_scaled_products_in_half_precision_round_once() -> None:
    a = torch.tensor([[60000.0, -300.0], [1.0, 5e4]], dtype=torch.float16)
    assert_close(matmul.addmm(a, a, a, alpha=1e-4), torch.addmm(a, a, a, alpha=1e-4))
    assert_close(matmul.baddbmm(a, a[None], a[None], alpha=1e-4), torch.baddbmm(a, a[None], a[None], alpha=1e-4))


EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,kj->ik", (2, 3), (4, 3)),
    ("ij,kj->ki", (2, 3), (4, 3)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ba,ca", (2, 3), (4, 3)),
    ("Ba , ca -> cB", (2, 3), (4, 3)),
    ("ij,j->i", (2, 3), (3,)),
    ("j,kj->k", (3,), (4, 3)),
    ("i,i->", (3,), (3,)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("ij,ji->", (2, 3), (3, 2)),
    ("bi,bi->b", (2, 3), (2, 3)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bij,bjk->ik", (2, 3, 4), (2, 4, 5)),
    ("bij,bjk->kbi", (2, 3, 4), (2, 4, 5)),
    ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5)),
    ("bhqk,bkhd->bqhd", (2, 4, 3, 6), (2, 6, 4, 5)),
    ("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 6, 2)),
    ("abcd,dcef->efab", (2, 3, 4, 5), (5, 4, 6, 2)),
    ("dab,cdb->ca", (5, 2, 3), (4, 5, 3)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...j,kj->...k", (2, 6, 3), (4, 3)),
    ("i...,i...->...", (2, 3, 4), (2, 3, 4)),
    ("ij,jk->ik", (0, 3), (3, 4)),
    ("ij,jk->ik", (2, 0), (0, 4)),
    ("bij,bjk->bik", (1, 3, 1), (1, 1, 5)),
]
DECLINED_EINSUMS = [
    ("i,j->ij", (2,), (3,)),  # no sum
    ("ii,ij->j", (2, 2), (2, 3)),  # a diagonal
    ("ij,jk->k", (2, 3), (3, 4)),  # a sum of one operand
    ("bij,bjk->bik", (1, 3, 4), (2, 4, 5)),  # a broadcast
]


@pytest.mark.parametrize("equation, a, b", EINSUMS)
def test_einsum(equation: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = torch.randn(a), torch.randn(b)
    assert_close(einsum.einsum(equation, [x, y]), torch.einsum(equation, x, y))


@pytest.mark.parametrize("equation, a, b", DECLINED_EINSUMS)
def test_einsum_declines(equation: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert einsum.einsum(equation, [torch.randn(a), torch.randn(b)]) is NotImplemented
