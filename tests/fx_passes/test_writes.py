"""Writes to memory reach their readers through the passes that run before a program is functional."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fx_importer import lower

X = torch.arange(12.0).reshape(3, 4) - 5
COUNT = torch.tensor(2)


def filled_by_item(x: Tensor, count: Tensor) -> Any:
    number = count.item()
    row = torch.full((4,), number)
    row[0] = 5
    return row, x * number


def filled_scalar(x: Tensor, count: Tensor) -> Any:
    number = count.item()
    total = torch.full((), number)
    total.add_(1)
    return total, x * number


def unused_batch_norm(x: Tensor, count: Tensor) -> Any:
    mean, variance = torch.zeros(4), torch.ones(4)
    F.batch_norm(x, mean, variance, training=True)
    return mean * count.item(), variance


def item_after_region(x: Tensor, count: Tensor) -> Any:
    z = x.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z[0].add_(1)
    return z * count.item()


def strides_before_no_grad(x: Tensor, count: Tensor) -> Any:
    z = x.clone()
    part = z.as_strided((2, 2), (4, 1))
    with torch.no_grad():
        z.add_(1)
    return part * 2


def strides_before_autocast(x: Tensor, count: Tensor) -> Any:
    z = x.clone()
    part = z.as_strided((2, 2), (4, 1))
    with torch.autocast("cpu", enabled=False):
        z.add_(1)
    return part * 2


def strides_written_in_no_grad(x: Tensor, count: Tensor) -> Any:
    z = x.clone()
    part = z.as_strided((3, 2), (1, 1))
    with torch.no_grad():
        part[0].zero_()
    return z


def windows_written_in_autocast(x: Tensor, count: Tensor) -> Any:
    z = x.clone()
    windows = z.unfold(1, 1, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        windows.mul_(2)
    return z


def mask_written_in_list(x: Tensor, count: Tensor) -> Any:
    numbers = torch.tensor([1.0, 0, 1, 0])
    torch.ops.aten._foreach_add_.List([numbers], [x[0]])
    return x[0][numbers > -4]


def mask_written_in_region(x: Tensor, count: Tensor) -> Any:
    numbers = torch.tensor([1.0, 0, 1, 1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        numbers[1:].sub_(1)
    return x[0][numbers >= 0]


def mask_written_by_alias(x: Tensor, count: Tensor) -> Any:
    numbers = torch.tensor([1.0, 0, 1, 0])
    numbers.type_as(x).add_(x[0])
    return x[0][numbers > -4]


BOTH = [
    *(strides_before_no_grad, strides_before_autocast, strides_written_in_no_grad, windows_written_in_autocast),
    *(unused_batch_norm, item_after_region),
]


@pytest.mark.parametrize(
    ("program", "output_type"),
    [
        *((program, output_type) for program in BOTH for output_type in ("linalg-on-tensors", "tosa")),
        *((program, "tosa") for program in (filled_by_item, filled_scalar)),
        *((program, "linalg-on-tensors") for program in (mask_written_in_list, mask_written_by_alias)),
        (mask_written_in_region, "linalg-on-tensors"),
    ],
)
def test_write_reaches_its_readers(program: Callable[[Tensor, Tensor], Any], output_type: str) -> None:
    lowered = lower(program, X, COUNT, output_type=output_type)
    results, expected = (tree_leaves(function(X.clone(), COUNT.clone())) for function in (lowered.run, program))
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted)
