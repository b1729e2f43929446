"""as_strided views, reads and writes, against eager; and to output types without strides."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from fx_importer import OutputType, lower

X = torch.arange(24.0).reshape(4, 6)


class Reads(torch.nn.Module):
    def forward(self, x):
        y = x.t() * 2
        overlapping = x.as_strided((3, 4), (2, 5)), x.as_strided((2, 2), (6, 1), 3)
        return *overlapping, y.as_strided((3, 4), (2, 5)), torch.as_strided_copy(x, (3,), (7,)), x.unfold(1, 3, 2)


class Diagonals(torch.nn.Module):
    def forward(self, x):
        return x.diagonal(), x.diagonal(1), x.t().diagonal(-2)


class Writes(torch.nn.Module):
    def forward(self, x):
        y = x.clone()
        y.as_strided((4,), (7,)).add_(5)
        y[1:3, ::2].fill_(3)
        z = torch.as_strided_scatter(x.t(), torch.ones(2, 2), (2, 2), (6, 1), 3)
        return y, z, torch.diagonal_scatter(x, torch.ones(4))


MODELS = {"reads": Reads(), "diagonals": Diagonals(), "writes": Writes()}


@pytest.mark.parametrize("name", MODELS)
def test_linalg_agrees_with_eager(name):
    results = lower(MODELS[name], X, output_type="linalg").run(X)
    for ours, eager in zip(tree_leaves(results), tree_leaves(MODELS[name](X)), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)


@pytest.mark.parametrize("output_type", [OutputType.TOSA, OutputType.STABLEHLO])
@pytest.mark.parametrize("name", MODELS)
def test_lowers(name, output_type):
    assert lower(MODELS[name], X, output_type=output_type).module.operation.verify()
