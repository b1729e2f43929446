"""Gradients of resizing, average pools and padding against eager's, where one element of the gradient is not finite."""

import math
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from fx_importer.decompositions.backward.avg_pool_backward import AVG_POOL_BACKWARD
from fx_importer.decompositions.backward.pad_backward import PAD_BACKWARD
from fx_importer.decompositions.backward.resize_backward import RESIZE_BACKWARD

aten = torch.ops.aten

RULES = {
    operator: rule
    for rules in (RESIZE_BACKWARD, AVG_POOL_BACKWARD, PAD_BACKWARD)
    for rule in rules
    for operator in rule.operators
}
X = torch.randn(1, 1, 5, 4, generator=torch.Generator().manual_seed(0))
SIZES = (((4, 4), (2, 2)), ((2, 2), (4, 4)), ((5, 3), (7, 8)), ((4, 4), (4, 4)), ((3, 4), (3, 2)), ((1, 3), (4, 1)))
NEAREST = (aten.upsample_nearest2d_backward.default, aten._upsample_nearest_exact2d_backward.default)
SMOOTH = (
    *(aten.upsample_bilinear2d_backward.default, aten.upsample_bicubic2d_backward.default),
    *(aten._upsample_bilinear2d_aa_backward.default, aten._upsample_bicubic2d_aa_backward.default),
)
OTHERS: dict[Any, tuple[tuple[int, int], tuple[Any, ...]]] = {
    aten.reflection_pad2d_backward.default: ((8, 7), ([1, 2, 2, 1],)),
    aten.replication_pad2d_backward.default: ((8, 7), ([1, 2, 2, 1],)),
    aten.avg_pool2d_backward.default: ((3, 3), ([3, 2], [2, 1], [1, 0], False, True, None)),
    aten._adaptive_avg_pool2d_backward.default: ((3, 3), ()),
}


def missing(outputs: tuple[int, int]) -> torch.Tensor:
    """Return gradients of ones, each of which has a NaN or an infinity of either sign at another place."""
    number = math.prod(outputs)
    values = torch.tensor([math.nan, math.inf, -math.inf])
    grads = torch.where(torch.eye(number, dtype=torch.bool), values.reshape(3, 1, 1), 1.0)
    return grads.reshape(3 * number, 1, *outputs)


def check(operator: Any, grad: torch.Tensor, *arguments: Any) -> None:
    assert_close(RULES[operator](grad, *arguments), operator(grad, *arguments), equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", NEAREST, ids=str)
def test_gradient_of_nearest_resizing_keeps_missing_values_in_place(operator: Any) -> None:
    for sizes, outputs in SIZES:
        grad = missing(outputs)
        check(operator, grad, list(outputs), [len(grad), 1, *sizes])


@pytest.mark.parametrize("aligned", [False, True], ids=["edges", "aligned"])
@pytest.mark.parametrize("operator", SMOOTH, ids=str)
def test_gradient_of_smooth_resizing_multiplies_what_eager_does(operator: Any, aligned: bool) -> None:
    for sizes, outputs in SIZES:
        grad = missing(outputs)
        check(operator, grad, list(outputs), [len(grad), 1, *sizes], aligned)


@pytest.mark.parametrize("operator", OTHERS, ids=str)
def test_gradient_of_windows_keeps_missing_values_in_place(operator: Any) -> None:
    outputs, arguments = OTHERS[operator]
    grad = missing(outputs)
    check(operator, grad, X.expand(len(grad), 1, -1, -1), *arguments)


def test_gradient_of_complex_padding() -> None:
    grad = torch.randn(1, 1, 8, 7, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    check(aten.reflection_pad2d_backward.default, grad, X.to(torch.complex64), [1, 2, 2, 1])


@pytest.mark.parametrize("operator", OTHERS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_have_the_dtype_of_the_results(operator: Any, dtype: torch.dtype) -> None:
    outputs, arguments = OTHERS[operator]
    grad, x = torch.ones(1, 1, *outputs, dtype=dtype), X.to(dtype)
    assert_close(RULES[operator](grad, x, *arguments), operator(grad, x, *arguments), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("operator", NEAREST, ids=str)
def test_gradients_of_nearest_resizing_have_the_dtype_of_the_results(operator: Any) -> None:
    grad = torch.ones(1, 1, 4, 4, dtype=torch.float16)
    check(operator, grad, [4, 4], [1, 1, 2, 2])
