"""Max pools of training on the JIT: values and indices are found at once, where the indices are saved."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from fx_importer.dynamo import graph_compilation
from fx_importer.dynamo.torch_compile import backend


@pytest.fixture
def programs(monkeypatch):
    """The text of the programs that are lowered."""
    found: list[str] = []
    lower = graph_compilation.lower

    def lowered(*args: Any, **options: Any) -> Any:
        result = lower(*args, **options)
        found.append(str(result.module))
        return result

    monkeypatch.setattr(graph_compilation, "lower", lowered)
    return found


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1)], ids=["slices", "padding"])
def test_values_of_saved_indices_are_not_found_twice(programs, pool):
    x = torch.randn(2, 3, 8, 10, generator=torch.Generator().manual_seed(0)).mul(2).round()  # has ties
    x[0, 0, 3, 4], x[:, 1, :3, :3] = math.nan, -math.inf
    compiled = torch.compile(pool, backend=backend)
    found = []
    for function in (pool, compiled):
        given = x.clone().requires_grad_()
        result = function(given)
        result.backward(torch.arange(result.numel(), dtype=torch.float32).reshape(result.shape))
        found.append((result.detach(), given.grad))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0, equal_nan=True)
    assert "linalg.pooling" not in programs[0]
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), pool(x), equal_nan=True)
    assert "linalg.pooling" in programs[-1]
