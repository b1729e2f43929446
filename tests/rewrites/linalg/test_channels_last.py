"""Convolutions with channels last, and what their layout goes through."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fx_importer import lower
from fx_importer.mlir.emit.emitter import producer
from fx_importer.mlir.module_contents import copy_module
from fx_importer.mlir.walk import operations
from fx_importer.pipelines.llvm import FUSE
from fx_importer.pipelines.runner import run_stage
from fx_importer.rewrites.linalg.axis_orders import consecutive_groups
from fx_importer.rewrites.linalg.channels_last import channels_last
from fx_importer.rewrites.linalg.loop_interchange import transposed_axes


class Residual(nn.Module):
    """Convolutions of all kinds, with a normalization, a pool, a residual sum and a mean."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.norm = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 5, padding=2, groups=16, bias=False)
        self.wide = nn.Conv2d(16, 24, 1)
        self.strided = nn.Conv2d(16, 24, 1, 2, bias=False)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        y = F.relu(self.depthwise(x) + x)
        return self.head((F.avg_pool2d(self.wide(y), 1, 2) * self.strided(y)).mean((2, 3)))


class Tokens(nn.Module):
    """Patches as tokens."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)

    def forward(self, x):
        return F.layer_norm(self.patches(x).flatten(2).transpose(1, 2), (32,))


class Blocks(nn.Module):
    """Linear layers on channels between convolutions."""

    def __init__(self):
        super().__init__()
        self.depthwise = nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.linear = nn.Linear(16, 16)
        self.second = nn.Conv2d(16, 16, 3, padding=2, dilation=2)

    def forward(self, x):
        y = self.linear(self.depthwise(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.second(x + y)


class Few(nn.Module):
    """Fewer channels than a vector has elements, sides of one element, and an order that nothing undoes."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(8, 1, 3, padding=(0, 1))
        self.many = nn.Conv2d(1, 12, 3, padding=1)

    def forward(self, x):
        y = self.many(F.pad(self.one(x).sigmoid(), (1, 0, 0, 2)))
        return y.softmax(3), y.cumsum(2), y.flip(1).reshape(-1), F.pixel_shuffle(y, 2)


def _transpositions(lowered) -> int:
    """Return how many tensors are transposed in each call."""
    module = copy_module(lowered.module.operation)
    channels_last()(module.operation)
    run_stage(FUSE, module)
    return sum(
        transposed_axes(op) is not None and producer(op.operands[0]) != "arith.constant"
        for op in operations(module.operation, ("linalg.generic",))
    )


@pytest.mark.slow_rows(
    r"^Few-shape3-None-torch\.bfloat16$",
    r"^Residual-shape0-1-torch\.bfloat16$",
    r"^Residual-shape0-1-torch\.float32$",
    r"^Few-shape3-None-torch\.float64$",
    r"^Residual-shape0-1-torch\.float64$",
    r"^Few-shape3-None-torch\.float32$",
    r"^Blocks-shape2-2-torch\.bfloat16$",
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "model, shape, count",
    [
        (Residual, (2, 3, 41, 45), 1),
        (Tokens, (2, 3, 16, 24), 1),
        (Blocks, (2, 16, 14, 14), 2),
        (Few, (2, 8, 3, 16), None),
    ],
)
def test_layouts_change_at_the_borders_only(model, shape, count, dtype):
    torch.manual_seed(0)
    module, x = model().to(dtype).eval(), torch.randn(shape, dtype=dtype)
    lowered = lower(module, x, output_type="linalg-on-tensors")
    if count and dtype == torch.float32:
        assert _transpositions(lowered) <= count
    tolerance = 1e-4 if dtype.itemsize > 2 else 5e-2
    with torch.no_grad():
        torch.testing.assert_close(lowered.run(x), module(x), rtol=tolerance, atol=tolerance)


def test_weights_that_are_arguments_keep_their_layout():
    x, w = torch.randn(1, 8, 9, 9), torch.randn(8, 8, 3, 3)
    lowered = lower(lambda x, w: F.relu(F.conv2d(x, w)), x, w, output_type="linalg-on-tensors")
    assert _transpositions(lowered) == 0


def test_equal_convolutions_with_different_weights():
    torch.manual_seed(0)
    module, x = nn.Sequential(*[nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)]), torch.randn(1, 8, 16, 16)
    caller = lower(module, x, output_type="linalg-on-tensors").caller()
    for _ in range(2):
        x = torch.randn(1, 8, 16, 16)
        torch.testing.assert_close(caller(x), module(x).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_convolutions_do_not_depend_on_the_number_of_threads(dtype):
    torch.manual_seed(0)
    layers = [(3, 64, 7, 2, 3), (64, 64, 3, 1, 1), (64, 256, 1), (256, 256, 5, 1, 2, 1, 256), (256, 128, 1, 2)]
    module = nn.Sequential(*[nn.Conv2d(*each) for each in layers]).eval().to(dtype)
    x = torch.randn(2, 3, 64, 64, dtype=dtype)
    caller = lower(module, x, output_type="linalg-on-tensors").caller()
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(caller(x))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(each, results[0]) for each in results[1:])


@pytest.mark.parametrize(
    "sizes, groups, runs",
    [
        ([2, 5, 7, 16], [[0], [3], [1, 2]], [(0, [0]), (2, [1, 2]), (1, [3])]),
        ([2, 1, 1, 16], [[0], [3, 1, 2]], [(0, [0, 1, 2]), (1, [3])]),
        ([1, 5, 7, 16], [[0, 3], [1, 2]], [(1, [0, 1, 2]), (0, [3])]),
        ([1, 1, 1, 1], [[0], [3], [1, 2]], [(0, [0]), (2, [1, 2]), (1, [3])]),
        ([2, 5, 7, 16], [[0, 3], [1, 2]], None),
        ([2, 5, 7, 16], [[0], [3, 1, 2]], None),
        ([2, 0, 7, 16], [[0], [3], [1, 2]], [(0, [0]), (2, [1, 2]), (1, [3])]),
    ],
)
def test_groups_of_consecutive_axes(sizes, groups, runs):
    assert consecutive_groups(sizes, groups) == runs
