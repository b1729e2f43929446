"""Rows beyond the end are written at the end, for engines that do not check; the JIT raises an error by itself."""

from __future__ import annotations

import pytest
import torch

from fx_importer import UsageError, lower
from fx_importer.engines import JitBackend
from fx_importer.mlir.module_contents import copy_module
from fx_importer.rewrites.linalg.insertion_bounds import clamp_insertions


def write(state: torch.Tensor, rows: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    return state.index_copy(0, first + torch.arange(rows.shape[0]), rows)


@pytest.mark.parametrize("first, written", [(2, 2), (5, 5), (7, 5), (100, 5), (-9, 0)])
def test_rows_stay_inside(first: int, written: int):
    state, rows = torch.zeros(8, 2), torch.ones(3, 2)
    count = torch.export.Dim("count", max=8)
    lowered = lower(
        write, state, rows, torch.tensor(0), output_type="linalg-on-tensors", dynamic_shapes=(None, {0: count}, None)
    )
    module = copy_module(lowered.module.operation)
    if first != written:
        with pytest.raises(UsageError):
            JitBackend().load(module)(state, rows, torch.tensor(first))
    clamp_insertions(module.operation)
    assert module.operation.verify()
    (found,) = JitBackend().load(module)(state, rows, torch.tensor(first))
    torch.testing.assert_close(found, write(state, rows, torch.tensor(written)))
