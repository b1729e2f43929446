"""Elements that loops of linalg write are at their places on IREE."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fx_importer import lower

pytest.importorskip("iree.compiler")

X, ROWS, ONES = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 2, 1]), torch.ones(3, 1)


@pytest.mark.slow_rows("^(one_axis|scatter|amax)-static$")
@pytest.mark.parametrize("rows", [None, torch.export.Dim("rows", min=2)], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "write",
    [
        lambda x, i: x.scatter_add(0, i.unsqueeze(1), ONES),
        lambda x, i: x.scatter_reduce(0, i.unsqueeze(1), ONES, "amax"),
        lambda x, i: x.scatter(0, i.unsqueeze(1), 5.0),
        lambda x, i: x[:, 1].scatter_add(0, i, ONES[:, 0]),
    ],
    ids=["scatter_add", "amax", "scatter", "one_axis"],
)
def test_elements_are_written_at_their_places(
    write: Callable[..., torch.Tensor], rows: torch.export.Dim | None
) -> None:
    shapes = rows and {"x": {0: rows}, "i": None}
    lowered = lower(write, X, ROWS, output_type="linalg-on-tensors", dynamic_shapes=shapes)
    assert torch.equal(lowered.caller(backend="iree")(X, ROWS), write(X, ROWS))
