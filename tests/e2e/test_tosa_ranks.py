"""Tensors of more than six axes in TOSA, on Arm's reference model against eager."""

import importlib.util

import pytest
import torch

from fx_importer import lower
from tests.e2e.harness import assert_same, normal

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tosa_reference_model") is None, reason="the extra 'tosa' is not installed"
)

X = normal(24, 10)
SHAPE = (2, 3, 2, 2, 5, 1, 2)
BIAS = torch.arange(12.0).reshape(1, 3, 1, 2, 1, 1, 2)


def elementwise(y):
    return y + BIAS, y * 2 + y.sin(), torch.where(BIAS > 5, y, -1.0), (y * 9).long() * (BIAS * 2**33).long(), y.half()


def reductions(y):
    sums = y.sum(3), y.double().mean((0, 3, 5)).float(), y.sum((1, 4), keepdim=True), y.softmax(4), y.var((1, 4))
    return (*sums, y.amax((2, 6)), y.argmax(4), (y > 0).any(3), y.cumsum(4))


def movements(y):
    transposed = y.transpose(1, 4), y.permute(0, 2, 1, 3, 5, 4, 6), y.permute(6, 4, 3, 2, 1, 0, 5)
    parts = y[:, 1:, :, :, ::2], y[:, :, 1], y[:, [0, 2]], y.flip(1, 4), y.roll(1, 1)
    joined = torch.cat([y, y], 2), torch.stack([y, y], 2), torch.nn.functional.pad(y, (1, 1, 0, 0, 2, 1))
    return (*transposed, *parts, *joined, y.expand(2, 3, 2, 2, 5, 4, 2), y.repeat(1, 2, 1, 1, 1, 1, 3))


def many(y):
    return y.reshape(2, 3, 2, 2, 5, 2, 1, 1, 1), y.reshape(*SHAPE[:4], 1, 5, 2).permute(6, 5, 4, 3, 2, 1, 0)


@pytest.mark.parametrize("program", [elementwise, reductions, movements, many])
def test_many_axes(program):
    def flat(x):
        return tuple(each.reshape(-1) for each in program(x.reshape(SHAPE)))

    lowered = lower(flat, X, output_type="tosa")
    assert_same(lowered.run(X), flat(X), (1e-5, 1e-5))


def test_dynamic_batch():
    def program(x):
        y = x.reshape(-1, 3, 2, 2, 5, 1, 2)
        return (y.permute(0, 2, 1, 4, 3, 5, 6) + 1).sum(2).flatten(1)

    x = normal(4, 120)
    lowered = lower(program, x, output_type="tosa", dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    assert lowered.verify(backends=["jit"])


def test_without_a_level_ranks_are_kept():
    lowered = lower(lambda x: x.reshape(SHAPE).sum(1), X, output_type="tosa", tosa_target="level=none")
    assert "tensor<2x3x2x2x5x1x2xf32>" in str(lowered.module)
