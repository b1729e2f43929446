"""Slices that DTensor takes of whole tensors, as one program for all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fx_importer.distributed.rank_operators import group_rank
from fx_importer.frontend.torch_patches import MASKED_ROWS, SHARD_SLICES, patched


@contextmanager
def slices_at_run_time() -> Iterator[None]:
    """Trace the rank in a mesh as `group_rank` where DTensor divides a whole tensor, or the rows of an embedding.

    DTensor writes the slice of the exporting rank into the program otherwise. Where ranks have parts of different
    sizes, it still does.
    """
    from torch.distributed.tensor.placement_types import Shard, _MaskPartial

    shard, partition = Shard._replicate_to_shard, _MaskPartial._partition_value

    def to_shard(self: Any, whole: torch.Tensor, mesh: Any, axis: int, index: Any) -> torch.Tensor:
        size, parts = whole.shape[self.dim], mesh.size(axis)
        if size % parts:
            return shard(self, whole, mesh, axis, index)
        stacked = whole.unflatten(self.dim, (parts, size // parts))
        return stacked.index_select(self.dim, group_rank((mesh, axis)).reshape(1)).flatten(self.dim, self.dim + 1)

    def to_own_rows(self: Any, indices: torch.Tensor, mesh: Any, axis: int) -> torch.Tensor:
        size, parts = self.offset_shape[self.offset_dim], mesh.size(axis)
        if size % parts:
            return partition(self, indices, mesh, axis)
        start = group_rank((mesh, axis)) * (size // parts)
        others, own = self._mask_tensor(indices, start, size // parts)
        self.mask_buffer.materialize_mask(others)
        return own

    with patched({SHARD_SLICES: to_shard, MASKED_ROWS: to_own_rows}):
        yield
