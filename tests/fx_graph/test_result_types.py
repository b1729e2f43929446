"""Rules of users that compute another type than their operator are refused, in every output type."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fx_importer import UnsupportedProgramError, lower

X = torch.arange(24.0).reshape(6, 4) - 9


def relu(x: Tensor) -> Tensor:
    return torch.relu(x) * 2


@pytest.mark.parametrize("output_type", ["raw", "torch", "linalg-on-tensors", "tosa", "stablehlo"])
@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (lambda x: x[:6], r"size 0 of the result is s\d+ in the exported program, and 6 after"),
        (lambda x: torch.ones(6, 4), r"size 0 of the result is s\d+ in the exported program, and 6 after"),
        (lambda x: x.clamp(min=0).double(), r"the result is torch\.float32 .*, and torch\.float64 after"),
        (lambda x: x.clamp(min=0)[:, :3], r"size 1 of the result is 4 .*, and 3 after"),
        (lambda x: x.clamp(min=0)[None], r"the result has 2 axes .*, and 3 after"),
    ],
    ids=["narrowed", "example size", "dtype", "other size", "rank"],
)
def test_another_type_is_refused(rule: Callable[[Tensor], Tensor], reason: str, output_type: str) -> None:
    rows = torch.export.Dim("rows", min=6)
    with pytest.raises(UnsupportedProgramError, match=f"(?s)another type after the decomp.*{reason}"):
        lower(relu, X, output_type=output_type, dynamic_shapes=({0: rows},), extra={"aten.relu": rule})


def test_sizes_of_constants_may_become_static() -> None:
    def function(x: Tensor) -> Tensor:
        return x[:, torch.arange(4) % 2 == 0]

    assert torch.equal(lower(function, X, output_type="tosa").run(X), function(X))
