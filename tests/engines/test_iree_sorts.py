"""Sorts on IREE, which runs the loops of linalg wrongly."""

from __future__ import annotations

import pytest
import torch

from fx_importer import UsageError, lower

pytest.importorskip("iree.compiler", reason="the extra 'iree' is not installed")


@pytest.mark.parametrize("function", [torch.argsort, torch.sort])
def test_sorts_of_linalg_are_refused_and_of_the_torch_dialect_run(function):
    x = torch.rand(5, 200, generator=torch.Generator().manual_seed(0))
    with pytest.raises(UsageError, match="does not run sorts of linalg.*output_type='stablehlo'"):
        lower(function, x, output_type="linalg").caller(backend="iree")
    lower(function, x, output_type="torch").verify(backends=["iree"]).raise_if_failed()


@pytest.mark.slow_rows("^20$")
@pytest.mark.parametrize("length", [20, 200])
def test_topk_of_linalg_runs(length):
    x = torch.rand(3, length, generator=torch.Generator().manual_seed(0))
    lower(lambda x: torch.topk(x, 5), x, output_type="linalg").verify(backends=["iree"]).raise_if_failed()


@pytest.mark.slow_rows("^(True-all|False-the first)$")
@pytest.mark.parametrize("read", [2, 9], ids=["the first", "all"])
@pytest.mark.parametrize("descending", [True, False])
def test_equal_elements_of_stablehlo_stay_in_order(descending, read):
    x = torch.tensor([[1.0, torch.nan, 1.0, 2.0, torch.nan, 1.0, 0.0, 0.0, 2.0]])

    def function(x):
        return [each[:, :read] for each in torch.sort(x, stable=True, dim=1, descending=descending)]

    lower(function, x, output_type="stablehlo").verify(backends=["iree"]).raise_if_failed()
