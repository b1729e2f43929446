"""Graphs, recompilations and graph breaks are those of torch's own backends."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from fx_importer.dynamo.torch_compile import NAME


def _branches(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y + 1 if y.sum() > 0 else y - 1


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "halves": (lambda x: x.view(x.shape[0] // 2, 2, 4).mean(1), [(torch.randn(n, 4),) for n in (2, 4, 6, 8)]),
    "numbers": (lambda x, k: x * k, [(torch.randn(3), k) for k in (2.0, 3.0, 4.0)]),
    "branches": (_branches, [(torch.rand(n) * sign,) for n in (3, 4, 5) for sign in (-1, 1)]),
    "training": (lambda x: x.tanh().sum(), [(torch.randn(n, requires_grad=True),) for n in (3, 4, 5)]),
}


@pytest.mark.slow_rows("^branches$", "^training$")
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_often_as_torch(name):
    function, calls = PROGRAMS[name]
    found = {}
    for backend in (NAME, "aot_eager"):
        torch._dynamo.reset()
        counters.clear()
        counting = CompileCounterWithBackend(backend)
        compiled = torch.compile(function, backend=counting)
        for arguments in calls:
            torch.testing.assert_close(compiled(*arguments), function(*arguments))
        found[backend] = counting.frame_count, sum(counters["graph_break"].values())
    assert found[NAME] == found["aot_eager"]
    assert found[NAME][0] > 1
