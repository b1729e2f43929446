"""A paged cache: one pool of slots per layer, which a page table argument assigns to sequences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fx_importer.llm.architectures.cache_layers import CacheLayer

SCRATCH = 0
"""The scratch page, which belongs to no sequence. Its contents are never used."""


class PagedSteps:
    """The tokens of one call: n per sequence b, at the positions ``lengths[b]``, ``lengths[b] + 1``, ….

    Args:
        pages: int64 [B, P], the pages of each sequence: position p is row ``pages[b, p // size] * size + p % size`` of
            the pool. Unused entries after a sequence's pages are `SCRATCH`. P * size is at least each length plus n.
        lengths: int64 [B], the number of positions of each sequence that are in the cache.
        number: n; symbolic if it is dynamic.
        size: the number of rows per page.
    """

    def __init__(self, pages: Tensor, lengths: Tensor, number: int, size: int):
        self.lengths, self.number = lengths, number
        self.positions = lengths.unsqueeze(1) + torch.arange(number)
        """int64 [B, n]."""
        offsets = pages.unsqueeze(2) * size + torch.arange(size)
        self.rows = offsets.reshape(pages.shape[0], pages.shape[1] * size)
        """The pool row of each position, int64 [B, L], L = P * size."""
        self.new_rows = self.rows.gather(1, self.positions).reshape(-1)
        """The pool rows to write, int64 [B * n]."""


class PagedCacheLayer(CacheLayer):
    """A cache layer in a pool, [rows, Hkv, D]. It writes the new rows and gathers the rows of each sequence.

    Sliding-window layers also hold all positions; the mask hides the ones outside the window.
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
        """Return the number of keys per sequence, L, and their positions, [B, L]."""
        batch, length = self.steps.rows.shape
        return length, torch.arange(length).expand(batch, -1)

    def get_seq_length(self) -> Any:
        """Return the position of the first new token of each sequence, int64 [B]."""
        return self.steps.lengths
