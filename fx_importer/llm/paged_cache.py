"""A cache in pages: one pool of rows per layer, from which each sequence has pages by a table that is an argument."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.llm.cache_layers import CacheLayer

SCRATCH = 0
"""The page that no sequence has: what is written there is never read."""


class PagedSteps:
    """The tokens of one call: n of each sequence b, at the positions ``lengths[b]``, ``lengths[b] + 1``, ….

    Args:
        pages: int64 [B, P], the pages of each sequence: position p is row ``pages[b, p // size] * size + p % size`` of
            the pool. Entries behind those that a sequence has are `SCRATCH`. P * size is at least each length plus n.
        lengths: int64 [B], the number of positions that each sequence has in the cache.
        number: n; symbolic if it is dynamic.
        size: the number of rows of a page.
    """

    def __init__(self, pages: Tensor, lengths: Tensor, number: int, size: int):
        self.lengths, self.number = lengths, number
        self.positions = lengths.unsqueeze(1) + torch.arange(number)
        """int64 [B, n]."""
        offsets = pages.unsqueeze(2) * size + torch.arange(size)
        self.rows = offsets.reshape(pages.shape[0], pages.shape[1] * size)
        """The row of the pool of each position, int64 [B, L], L = P * size."""
        self.new_rows = self.rows.gather(1, self.positions).reshape(-1)
        """The rows that are written, int64 [B * n]."""


class PagedCacheLayer(CacheLayer):
    """A layer of the cache in a pool of rows, [rows, Hkv, D]. New rows are written; those of the sequences are read.

    Layers with a sliding window hold all positions too: the mask hides those outside.
    """

    def __init__(self, buffers: torch.nn.Module, steps: PagedSteps):
        super().__init__(buffers, steps)
        self.rows = steps.rows.shape[1]

    def _updated(self, buffer: Tensor, new: Tensor) -> Tensor:
        batch, heads, number, width = new.shape
        written = new.transpose(1, 2).reshape(batch * number, heads, width).to(buffer.dtype)
        buffer.index_copy_(0, self.steps.new_rows, written)
        rows = self.steps.rows
        read = buffer.index_select(0, rows.reshape(-1)).reshape(batch, rows.shape[1], heads, width)
        return read.transpose(1, 2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, Any]:
        """Return the number of keys of each sequence, L, and their positions, [B, L]."""
        batch, length = self.steps.rows.shape
        return length, torch.arange(length).expand(batch, -1)

    def get_seq_length(self) -> Any:
        """Return the position of the first new token of each sequence, int64 [B]."""
        return self.steps.lengths
