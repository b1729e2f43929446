"""Rows that are written into state at computed positions: in place, and as if all were read before."""

import pytest
import torch
from torch import nn

from fx_importer import UsageError, lower
from tests.engines.test_engine_table import needs_tosa


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.k: torch.Tensor
        self.j: torch.Tensor
        self.register_buffer("k", torch.arange(64.0).reshape(1, 2, 8, 4))
        self.register_buffer("j", -torch.arange(64.0).reshape(1, 2, 8, 4))


class ReturnsNewRows(State):
    def forward(self, x, at):
        y = x * 2
        self.k.index_copy_(2, at, y)
        return y, self.k


class ReturnsOldState(State):
    def forward(self, x, at):
        old, part = self.k.clone(), self.k[:, :, 2:7].clone()
        self.k.index_copy_(2, at, x)
        return old, part, self.k[:, :, 1], self.k.transpose(1, 2)


class Swaps(State):
    def forward(self, x, at):
        a, b = self.k[:, :, 0:1].clone(), self.j[:, :, 1:2].clone()
        self.k.index_copy_(2, at, b.expand(-1, -1, x.shape[2], -1))
        self.j.index_copy_(2, at, a.expand(-1, -1, x.shape[2], -1))
        return x


class ShiftsItself(State):
    def forward(self, x, at):
        self.k.index_copy_(2, at, self.k[:, :, : x.shape[2]].clone())
        return self.k.sum()


class WritesTwice(State):
    def forward(self, x, at):
        self.k.index_copy_(2, at, x)
        mean = self.k.mean(2)
        self.k[:, :, at.flip(0)] = x + mean.unsqueeze(2)
        self.j.add_(1)
        return mean, self.j


class FromAnother(State):
    def forward(self, x, at):
        self.k.index_copy_(2, at, x)
        self.j.index_copy_(2, at, self.k[:, :, : x.shape[2]])
        return self.k + self.j


class FirstAxis(State):
    def forward(self, x, at):
        self.k.view(16, 4).index_copy_(0, at, x[0, 0])
        return self.k[0]


MODELS = (ReturnsNewRows, ReturnsOldState, Swaps, ShiftsItself, WritesTwice, FromAnother, FirstAxis)


@pytest.mark.slow_rows(
    "^linalg-on-tensors-functional-FirstAxis$",
    "^linalg-on-tensors-mutable-Swaps$",
    "^linalg-on-tensors-mutable-FirstAxis$",
    "^linalg-on-tensors-functional-WritesTwice$",
    "^linalg-on-tensors-mutable-WritesTwice$",
    "^linalg-on-tensors-functional-ReturnsOldState$",
    "^linalg-on-tensors-functional-FromAnother$",
)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "output_type, mutation",
    [("linalg-on-tensors", "mutable"), ("linalg-on-tensors", "functional"), ("stablehlo", "functional")],
)
def test_rows_and_results_are_those_of_eager(model, output_type, mutation):
    for rows in ([3], [6, 0, 2]) if output_type == "linalg-on-tensors" else ([3],):
        at, x = torch.tensor(rows), torch.randn(1, 2, len(rows), 4)
        eager = model()
        caller = lower(model(), x, at, mutation=mutation, output_type=output_type).caller(backend="jit")
        for _ in range(2):
            results, expected = caller(x, at), eager(x, at)
            torch.testing.assert_close(results, expected)
            for name, value in caller.state.items():
                torch.testing.assert_close(value, eager.get_buffer(name))
            for each in results if isinstance(results, tuple) else (results,):
                each.add_(1000)  # no result shares memory with the state


@pytest.mark.parametrize("position", [-1, 7])
def test_rows_outside_are_an_error_on_the_jit_and_not_written_in_stablehlo(position):
    class Counted(State):
        def forward(self, x, position):
            self.k.index_copy_(2, position + torch.arange(2), x)
            return x

    x, inside, outside = torch.ones(1, 2, 2, 4), torch.tensor(3), torch.tensor(position)
    for mutation in ("mutable", "functional"):
        lowered = lower(Counted(), x, inside, mutation=mutation, output_type="linalg-on-tensors")
        with pytest.raises(UsageError, match="out of range|out of bounds|outside"):
            lowered.run(x, outside)
    caller = lower(Counted(), x, inside, mutation="functional", output_type="stablehlo").caller(backend="jit")
    before = caller.state["k"].clone()
    caller(x, outside)
    assert torch.equal(caller.state["k"], before)


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo", pytest.param("tosa", marks=needs_tosa)])
def test_grouped_heads_attend_as_in_eager(output_type):
    def attend(q, k, v, mask):
        return nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)

    q, k, v = torch.randn(2, 6, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    mask = torch.rand(2, 1, 3, 5) > 0.3
    lowered = lower(attend, q, k, v, mask, output_type=output_type)
    assert lowered.verify(backends=["tosa_reference" if output_type == "tosa" else "jit"])
    assert "6x5x8" not in str(lowered.module)  # heads of keys are not repeated
