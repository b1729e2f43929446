"""Calls of dynamic functions with a size of 0: TOSA has no such tensors, StableHLO's interpreter no sums over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.export import Dim

from fx_importer import Caller, lower

pytest.importorskip("tosa_reference_model")
EMPTY = torch.ones(0, 3)


def _caller(model: Callable[..., Any], output_type: str = "tosa") -> Caller:
    dynamic = ({0: Dim("batch", min=0, max=8)},)
    return lower(model, torch.ones(4, 3), dynamic_shapes=dynamic, output_type=output_type).caller()


def _rows(x: Tensor) -> tuple[Tensor, ...]:
    chosen = torch.cond(x.sum() > 0, lambda x: x.relu() + 1, lambda x: x.cos(), (x,))
    return x.relu().sum(1), x.argmax(1), x.reshape(-1), chosen


def test_results_without_elements_need_no_module() -> None:
    call = _caller(_rows)
    for x in (EMPTY, torch.randn(2, 3)):
        for found, expected in zip(call(x), _rows(x), strict=True):
            torch.testing.assert_close(found, expected)


def _over_rows(x: Tensor) -> tuple[Tensor, ...]:
    joined = torch.cat([x, torch.ones(2, 3)])
    sums = x.sum(0), x.relu() @ x.t(), x.t() @ x
    return *sums, joined, (x > 0).all(0), F.pad(x, (1, 1, 1, 1)), x.mean(0), x.softmax(0)


def test_results_over_no_elements() -> None:
    for ours, eager in zip(_caller(_over_rows)(EMPTY), _over_rows(EMPTY), strict=True):
        assert ours.shape == eager.shape
        torch.testing.assert_close(ours, eager, equal_nan=True)


def test_products_over_no_elements_in_stablehlo() -> None:
    assert torch.equal(_caller(lambda x: x.t() @ x, "stablehlo")(EMPTY), torch.zeros(3, 3))


def test_writes_of_no_rows() -> None:
    def write(x: Tensor, places: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        return x.index_put((places,), rows), x.index_add(0, places, rows)

    number = Dim("number", min=0, max=9)
    x, places = torch.randn(5, 3), torch.tensor([0, 2, 1, 4])
    shapes = (None, {0: number}, {0: number})
    lowered = lower(write, x, places, torch.randn(4, 3), output_type="tosa", dynamic_shapes=shapes)
    results = lowered.caller(backend="tosa_reference")(x, places[:0], EMPTY)
    assert all(torch.equal(each, x) for each in results)


def test_gathers_from_no_rows_in_stablehlo() -> None:
    def read(x: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        return x[places], x[x[:, 0] > 0].flip(0), torch.cat([x[:, 1][places], torch.ones(2)])

    number, rows = Dim("number", min=0, max=9), Dim("rows", min=0, max=9)
    lowered = lower(
        read,
        torch.randn(5, 3),
        torch.tensor([0, 2, -1]),
        output_type="stablehlo",
        dynamic_shapes=({0: rows}, {0: number}),
    )
    for x, places in ((EMPTY, torch.zeros(0, dtype=torch.int64)), (torch.randn(2, 3), torch.tensor([1, 0, -2, -1]))):
        for ours, eager in zip(lowered.run(x, places), read(x, places), strict=True):
            assert torch.equal(ours, eager)
