"""Control flow, run both ways and for several trip counts."""

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from fx_importer import lower


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(3.0))

    def forward(self, x):
        def inner(t):
            return torch.cond(t.max() > -1, lambda u: u * 3, lambda u: u - self.weight, (t,))

        return torch.cond(x.sum() > 0, lambda t: t + self.weight, inner, (x,))


class Loop(torch.nn.Module):
    def forward(self, n, x):
        return while_loop(lambda i, x: i > 0, lambda i, x: (i - 1, x * 2 + i), (n, x))


@pytest.fixture(scope="module")
def branches():
    return lower(Branches(), torch.ones(3), output_type="linalg")


@pytest.fixture(scope="module")
def loop():
    return lower(Loop(), torch.tensor(3), torch.ones(2), output_type="linalg")


@pytest.mark.parametrize("value", [1.0, -0.5, -5.0], ids=["then", "else, then", "else, else"])
def test_cond(branches, value):
    x = torch.full((3,), value)
    assert torch.equal(branches.run(x), Branches()(x))


@pytest.mark.parametrize("turns", [0, 1, 3, 7])
def test_while_loop(loop, turns):
    results = loop.run(torch.tensor(turns), torch.ones(2))
    for result, expected in zip(results, Loop()(torch.tensor(turns), torch.ones(2)), strict=True):
        assert torch.equal(result, expected)


@pytest.mark.parametrize("table", [None, {}], ids=["decomposed", "as exported"])
def test_modes_are_inlined(table):
    def model(x):
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return y, x @ x

    x = torch.arange(4.0).reshape(2, 2)
    lowered = lower(model, x, output_type="linalg", decomposition_table=table)
    torch.testing.assert_close(lowered.run(x), model(x))
