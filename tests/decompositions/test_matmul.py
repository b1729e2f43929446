"""Rules of matrix products against eager."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from fx_importer.decompositions.matmul import matmul


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
