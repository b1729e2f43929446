"""Products of matrices."""

import torch
from torch import nn

from .harness import Case, check, integers, normal, table


@table(
    Case("mm", lambda: (torch.mm, (normal(3, 4), normal(4, 5)))),
    Case("bmm", lambda: (torch.bmm, (normal(2, 3, 4), normal(2, 4, 5)))),
    Case("broadcast", lambda: (torch.matmul, (normal(2, 1, 3, 4), normal(5, 4, 6)))),
    Case("vectors", lambda: (lambda m, v: (m @ v, v @ m.T, v @ v), (normal(3, 4), normal(4)))),
    Case("transposed", lambda: (lambda a, b: (a.T @ b, a.T @ b.T.contiguous().T), (normal(4, 3), normal(4, 5)))),
    Case("linear", lambda: (nn.Linear(4, 5), (normal(2, 3, 4),))),
    Case("linear_without_bias", lambda: (nn.Linear(4, 5, bias=False), (normal(3, 4),))),
    Case("linear_of_a_vector", lambda: (nn.Linear(4, 5), (normal(4),))),
    Case(
        "addmm",
        lambda: (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), (normal(5), normal(3, 4), normal(4, 5))),
    ),
    Case("baddbmm", lambda: (torch.baddbmm, (normal(2, 3, 5), normal(2, 3, 4), normal(2, 4, 5)))),
    Case(
        "einsum", lambda: (lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), (normal(2, 3, 4, 5), normal(2, 3, 6, 5)))
    ),
    Case("outer", lambda: (torch.outer, (normal(3), normal(4)))),
    Case("bilinear", lambda: (nn.Bilinear(3, 4, 5), (normal(2, 3), normal(2, 4)))),
    Case("integers", lambda: (torch.mm, (integers(3, 4, low=-9, high=9), integers(4, 5, low=-9, high=9)))),
    Case("wide", lambda: (nn.Linear(300, 70), (normal(65, 300),))),
    Case("mlp", lambda: (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (normal(3, 4),))),
)
def test_matmul(case, output_type):
    check(case, output_type)
