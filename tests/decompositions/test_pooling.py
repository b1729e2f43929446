"""The rules of pooling against eager: padding, dilation, windows over the edge, ties and NaN."""

import math
import random
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close

from fx_importer.decompositions.backward.avg_pool_backward import AVG_POOL_BACKWARD
from fx_importer.decompositions.backward.max_pool_backward import MAX_POOL_BACKWARD
from fx_importer.decompositions.nn import adaptive_pooling, pooling

aten = torch.ops.aten

X = torch.randn(2, 3, 7, 8, 6, generator=torch.Generator().manual_seed(0))
TIES = X.mul(2).round()
NOT_NUMBERS = X.clone()
NOT_NUMBERS.view(-1)[::17] = math.nan

MAXIMA: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": (2, 3, 2), "stride": (3, 1, 2), "dilation": (2, 1, 3)},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (2, 3, 2), "stride": (1, 2, 3), "padding": (0, 1, 1), "ceil_mode": True},
    {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": 2},
    {"kernel_size": 2, "stride": 3, "padding": 1, "dilation": 3, "ceil_mode": True},
    {"kernel_size": 20, "padding": 3, "ceil_mode": True},
    {"kernel_size": 5, "padding": 2, "dilation": 3, "ceil_mode": True},
]


@pytest.mark.parametrize("given", MAXIMA, ids=str)
@pytest.mark.parametrize("x", [X, TIES, NOT_NUMBERS], ids=["normal", "ties", "not_numbers"])
def test_max(given: dict[str, Any], x: torch.Tensor) -> None:
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    three: list[Any] = [given.get(name, default) for name, default in zip(names, (0, (), 0, 1, False), strict=True)]
    expected = F.max_pool3d(x, **given, return_indices=True)
    assert_close(pooling.max_pool3d(x, *three), expected, equal_nan=True)
    two: dict[str, Any] = {name: value[1:] if isinstance(value, tuple) else value for name, value in given.items()}
    flat: list[Any] = [each[1:] if isinstance(each, tuple) else each for each in three]
    expected = F.max_pool2d(x[0], **two, return_indices=True)
    assert_close(pooling.max_pool2d(x[0], *flat), expected, equal_nan=True)
    assert_close(pooling.max_pool2d_at_once(x[0], *flat), expected, equal_nan=True)
    assert_close(pooling.max_pool2d(x[0, 0], *flat), tuple(each[0] for each in expected), equal_nan=True)


@pytest.mark.parametrize("size", [(1, 1, 1), (3, 5, 4), (7, 8, 6), (9, 2, 4)])
def test_adaptive(size: tuple[int, int, int]) -> None:
    expected = F.adaptive_max_pool3d(TIES, size, return_indices=True)
    assert_close(adaptive_pooling.adaptive_max_pool(TIES, size), expected)
    expected = F.adaptive_max_pool2d(TIES[0], size[1:], return_indices=True)
    assert_close(adaptive_pooling.adaptive_max_pool(TIES[0], size[1:]), expected)
    assert_close(adaptive_pooling.adaptive_avg_pool(X, size), F.adaptive_avg_pool3d(X, size))


@pytest.mark.parametrize("included", [True, False])
@pytest.mark.parametrize("divisor", [None, 5])
@pytest.mark.parametrize("ceil", [True, False])
@pytest.mark.parametrize("sizes", [([2], [], 0), ([3, 2, 3], [2, 1, 2], [1, 0, 1]), ([3], [3], [1])], ids=str)
def test_average(sizes: Any, ceil: bool, divisor: int | None, included: bool) -> None:
    kernel, stride, padding = sizes
    expected = F.avg_pool3d(X, kernel * (3 // len(kernel)), stride or None, padding, ceil, included, divisor)
    assert_close(pooling.avg_pool(X, kernel, stride, padding, ceil, included, divisor), expected)
    if len(kernel) == 1:
        expected = F.avg_pool2d(X[:, 0], kernel, stride or None, padding, ceil, included, divisor)
        if divisor or (ceil and any(padding if isinstance(padding, list) else [padding])):  # TOSA has the others
            assert_close(pooling.avg_pool(X[:, 0], kernel, stride, padding, ceil, included, divisor), expected)


@pytest.mark.slow_rows("^3$")
@pytest.mark.parametrize("padding", [0, 3])
def test_windows_larger_than_the_image(padding: int) -> None:
    """The average of everything, as EfficientNet has it: as many terms as there are elements, not as in the window."""
    image, sizes = X[:, 0], []
    for kernel in (20, 2000):
        settings: Any = ([kernel], [], padding, True, False)
        assert_close(pooling.avg_pool(image, *settings), F.avg_pool2d(image, kernel, None, padding, *settings[3:]))
        traced = make_fx(partial(_average, settings))(image)
        sizes.append(len(traced.graph.nodes))
    assert sizes[0] == sizes[1]


def _average(settings: Any, x: torch.Tensor) -> Any:
    return pooling.avg_pool(x, *settings)


def random_windows(rng: random.Random) -> tuple[int, list[Any]]:
    axes = rng.choice((2, 3))
    sizes, kernel, stride, dilation = ([rng.randint(1, most) for _ in range(axes)] for most in (7, 4, 4, 3))
    padding = [rng.randint(0, length // 2) for length in kernel]
    lead = rng.choice(([2, 3], [3]))
    return axes, [lead + sizes, kernel, rng.choice((stride, [])), padding, dilation, rng.random() < 0.5]


@pytest.mark.slow
def test_random_windows() -> None:
    rng, made = random.Random(0), torch.Generator().manual_seed(0)
    for _ in range(600):
        axes, (shape, *window) = random_windows(rng)
        x = torch.randn(shape, generator=made).mul(2).round()
        kernel, stride, padding, _, ceil = window
        how = [kernel, stride, padding, ceil, rng.random() < 0.5, rng.choice((None, 3))]
        try:
            expected = getattr(aten, f"max_pool{axes}d_with_indices")(x, *window)
            average = getattr(aten, f"avg_pool{axes}d")(x, *how)
        except RuntimeError:  # no window fits
            continue
        rule = pooling.max_pool2d if axes == 2 else pooling.max_pool3d
        found: Any = rule(x, *window)
        if found is not NotImplemented:  # a window is empty: eager's index is not one of its elements
            assert_close(found, expected, msg=f"{shape} {window}")
            grad = torch.randn(expected[0].shape, generator=made)
            backward = getattr(aten, f"max_pool{axes}d_with_indices_backward")(grad, x, *window, expected[1])
            assert_close(MAX_POOL_BACKWARD[axes - 2](grad, x, *window, expected[1]), backward, msg=f"{shape} {window}")
        found = pooling.avg_pool(x, *how)
        if found is not NotImplemented:
            assert_close(found, average, msg=f"{shape} {how}")
        grad = torch.randn(average.shape, generator=made)
        backward = getattr(aten, f"avg_pool{axes}d_backward")(grad, x, *how)
        assert_close(AVG_POOL_BACKWARD[axes - 2](grad, x, *how), backward, msg=f"{shape} {how}")
