"""Cache layers for transformers models: a row for each position, or a ring buffer for a sliding window."""

from __future__ import annotations

import math
import mmap
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin


class Steps:
    """The tokens of one call: n per sequence, at the positions ``first``, ``first + 1``, ….

    Args:
        first: int64 [].
        number: n; symbolic if it is dynamic.
        padding: int64 [B], the number of padding positions at the start of each sequence.
        last: int64 [], the index of the last real token; everything after it is padding. By default there is none.
        is_prefix: whether each of the tokens attends to all of them, and not only to those before it.
    """

    def __init__(self, first: Tensor, number: int, padding: Tensor, last: Tensor | None, *, is_prefix: bool = False):
        self.is_prefix = is_prefix
        self.first, self.number, self.padding = first, number, padding
        self.positions = first + torch.arange(number)
        self.end = first + (number if last is None else last + 1)
        """The position after the last real token, int64 []."""
        self.started: set[int] = set()
        """The states, by `id`, that sequences that start have initialized: see `StateLayer`."""

    def seen(self, positions: Tensor) -> Tensor:
        """Return the key ``positions`` [L] for each sequence, [B, L]; hidden keys get a position after all queries.

        In a prefix, keys up to the last real token get the position of the first query, so all queries see them.
        """
        hidden = (positions < self.padding.unsqueeze(1)) | (positions < 0)
        if self.is_prefix:
            positions = torch.where(positions < self.end, positions.minimum(self.first), positions)
        return torch.where(hidden, self.first + self.number, positions)


class CacheLayer(CacheLayerMixin):
    """A layer that holds all positions, with position p in row p. It writes the new rows and reads the whole buffer.

    Args:
        buffers: a module with the buffers ``key`` and ``value``, [B, Hkv, L, D].
        steps: the tokens to write.
    """

    is_compileable = True
    is_sliding = False

    def __init__(self, buffers: torch.nn.Module, steps: Any):
        super().__init__()
        self._key, self._value = self.keys, self.values = buffers.get_buffer("key"), buffers.get_buffer("value")
        self.rows = self._key.shape[2]
        self.steps = steps
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the cache is already in buffers."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write new keys and values, [B, Hkv, n, D], and return the keys and values that queries attend to."""
        return self._updated(self._key, key_states), self._updated(self._value, value_states)

    def _updated(self, buffer: Tensor, new: Tensor) -> Tensor:
        return buffer.index_copy_(2, self.steps.positions, new.to(buffer.dtype))

    def get_mask_sizes(self, query_length: int) -> tuple[int, Any]:
        """Return the number of keys from `update` and their positions per sequence, for `attention.mask`."""
        return self.rows, self.steps.seen(torch.arange(self.rows))

    def get_seq_length(self) -> Any:
        """Return the position of the first new row, a tensor."""
        return self.steps.first

    def get_max_length(self) -> int:
        """Return the number of rows."""
        return self.rows


class SlidingCacheLayer(CacheLayer):
    """A ring buffer for a sliding window: it holds the last W positions, with position p in row p modulo W.

    A single token overwrites the row of the position that leaves the window, then attends to the ring. Several tokens
    would overwrite rows that they attend to, so they attend to the old ring and to themselves, and the ring is then
    rebuilt from both.
    """

    is_sliding = True

    def _updated(self, buffer: Tensor, new: Tensor) -> Tensor:
        new = new.to(buffer.dtype)
        if self._is_one():
            return buffer.index_copy_(2, self.steps.positions % self.rows, new)
        both = torch.cat((buffer, new), 2)
        position = self._positions(self.steps.end)
        old = position < self.steps.first
        source = torch.where(old, torch.arange(self.rows), self.rows + position - self.steps.first)
        buffer.copy_(both.index_select(2, source))
        return both

    def get_mask_sizes(self, query_length: int) -> tuple[int, Any]:
        """Return the number of keys that `update` returns and their positions per sequence."""
        if self._is_one():
            return self.rows, self.steps.seen(self._positions(self.steps.end))
        positions = torch.cat((self._positions(self.steps.first), self.steps.positions))
        return self.rows + self.steps.number, self.steps.seen(positions)

    def _is_one(self) -> bool:
        return isinstance(self.steps.number, int) and self.steps.number == 1

    def _positions(self, end: Tensor) -> Tensor:
        """Return the position in each row, [W], after ``end`` positions were written; negative for an empty row."""
        return end - 1 - (end - 1 - torch.arange(self.rows)) % self.rows


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return zeros that take no memory until they are written. Export never writes them; it only reads shapes."""
    size = math.prod(shape) * dtype.itemsize
    return torch.frombuffer(mmap.mmap(-1, size), dtype=dtype).view(shape)
