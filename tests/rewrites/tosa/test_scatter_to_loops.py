"""``tosa.scatter`` as loops, on the JIT."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fx_importer import lower
from fx_importer.calls.backend import Loaded

SCATTER = """
func.func @main(%values: tensor<2x4x2xf32>, %rows: tensor<2x3xi32>, %input: tensor<2x3x2xf32>) -> tensor<2x4x2xf32> {
  %0 = tosa.scatter %values, %rows, %input
      : (tensor<2x4x2xf32>, tensor<2x3xi32>, tensor<2x3x2xf32>) -> tensor<2x4x2xf32>
  return %0 : tensor<2x4x2xf32>
}
"""


def test_rows_are_written_where_they_are_in_range(jit: Callable[[str], Loaded]) -> None:
    values, rows = torch.zeros(2, 4, 2), torch.tensor([[3, 0, 4], [-1, 2, 1]], dtype=torch.int32)
    input_ = torch.arange(1.0, 13.0).reshape(2, 3, 2)
    (result,) = jit(SCATTER)(values, rows, input_)
    expected = values.clone()
    for batch, row, number in ((0, 3, 0), (0, 0, 1), (1, 2, 1), (1, 1, 2)):
        expected[batch, row] = input_[batch, number]
    assert torch.equal(result, expected)


def test_writes_through_views() -> None:
    def doubled(x):
        y = torch.einsum("bih,th->bit", x, x[0]).reshape(x.shape[0], -1)[:, 1:]
        y *= 2
        return y

    x = torch.arange(12.0).reshape(2, 2, 3)
    lowered = lower(doubled, x, output_type="tosa")
    assert "tosa.scatter" in str(lowered.module)
    assert torch.equal(lowered.caller(backend="jit")(x), doubled(x))
