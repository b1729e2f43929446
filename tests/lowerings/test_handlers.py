"""Calls that no rule of ``lowerings=`` matches: the built-in lowering takes them only where it is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fx_importer import NoMatch, UnsupportedProgramError, lower, lowers
from fx_importer.errors import KeptOperatorWarning

aten = torch.ops.aten
X, INDICES = torch.arange(12.0).reshape(4, 3) - 5, torch.tensor([-1, 0])


@lowers(aten.index.Tensor, aten.prod.default, into=("stablehlo", "linalg-on-tensors"))
def declining(emit: Any, *arguments: Any, **keywords: Any) -> Any:
    raise NoMatch("no call is mine")


def rows(x: Tensor, indices: Tensor) -> Tensor:
    return x[indices]


def test_wrong_built_in_lowering_is_refused() -> None:
    reason = r"(?s)declining .*does not match: no call is mine; lowerings= leaves aten\.index\.Tensor .*test_handlers"
    with pytest.raises(UnsupportedProgramError, match=reason):
        lower(rows, X, INDICES, output_type="stablehlo", lowerings=[declining])


def test_inexact_built_in_lowering_is_warned_of() -> None:
    with pytest.warns(KeptOperatorWarning, match=r"lowerings= leaves aten\.prod\.default .*off by"):
        lowered = lower(torch.prod, X, output_type="linalg-on-tensors", lowerings=[declining])
    (importing,) = (stage for stage in lowered.trace.stages if stage.name == "importing")
    assert any("aten.prod" in remark for remark in importing.remarks)


def test_extra_decomposes_calls_without_a_match() -> None:
    def wrapped(x: Tensor, indices: list[Tensor]) -> Tensor:
        (index,) = indices
        return x.index_select(0, torch.where(index < 0, index + x.shape[0], index))

    extra = {"aten.index.Tensor": wrapped}
    lowered = lower(rows, X, INDICES, output_type="stablehlo", lowerings=[declining], extra=extra)
    assert torch.equal(lowered.run(X, INDICES), X[INDICES])
