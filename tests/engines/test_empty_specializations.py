"""Calls of dynamic TOSA functions with a size of 0, which TOSA does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from fx_importer import Caller, UsageError, lower

pytest.importorskip("tosa_reference_model")
EMPTY = torch.ones(0, 3)


def _caller(model: Callable[..., Any]) -> Caller:
    dynamic = ({0: Dim("batch", min=0, max=8)},)
    return lower(model, torch.ones(4, 3), dynamic_shapes=dynamic, output_type="tosa").caller(backend="tosa_reference")


def _rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.relu().sum(1), x.argmax(1), x.reshape(-1)


def test_results_without_elements_need_no_module() -> None:
    call = _caller(_rows)
    for x in (EMPTY, torch.randn(2, 3)):
        for found, expected in zip(call(x), _rows(x), strict=True):
            torch.testing.assert_close(found, expected)


def test_results_with_elements_are_refused() -> None:
    with pytest.raises(UsageError, match=r"inputs of sizes \[0, 3\] has results with elements \(tensor<f32>\)"):
        _caller(lambda x: (x * 2, x.sum()))(EMPTY)
