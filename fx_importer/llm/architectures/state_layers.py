"""Cache layers with a state of constant size: windows of convolutions, and states of recurrences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import LinearAttentionLayer

from fx_importer.llm.architectures.cache_layers import CacheLayer, SlidingCacheLayer, Steps

CONVOLUTION, RECURRENCE = "conv", "recurrent"
"""The names of the buffers, each followed by the number of the state, in order: ``conv0``, ``recurrent0``, …."""


class StateLayer(LinearAttentionLayer):
    """A layer whose states, [B, …], are in buffers, which the model's code reads and writes in place.

    Each state is the one after the last token, so a call appends a single token. A sequence starts at its first token
    that is not padding: the states before it are then its initial ones, whatever the buffers hold.

    Args:
        buffers: a module with the buffers ``conv0``, …, ``recurrent0``, ….
        steps: the token to append.
        initial: the initial value of the elements of a state that does not start with zeros, by the name of its buffer.
    """

    def __init__(self, buffers: torch.nn.Module, steps: Steps, initial: dict[str, float] | None = None):
        if steps.number != 1:
            raise ValueError("a layer with states takes one token at a time")
        names = dict(buffers.named_buffers())
        number = sum(name.startswith(CONVOLUTION) for name in names) or 1
        super().__init__(number_of_states=max(number, sum(name.startswith(RECURRENCE) for name in names)))
        self.buffers = {name: buffer for name, buffer in names.items() if name not in ("key", "value")}
        self.initial = initial or {}
        self.steps = steps
        for index in range(self.number_of_states):
            self.conv_states[index] = self.buffers.get(f"{CONVOLUTION}{index}")
            self.recurrent_states[index] = self.buffers.get(f"{RECURRENCE}{index}")
            self.is_conv_states_initialized[index] = self.conv_states[index] is not None
            self.is_recurrent_states_initialized[index] = self.recurrent_states[index] is not None
            self.has_previous_state[index] = True
            window = self.conv_states[index]
            self.conv_kernel_size[index] = None if window is None else window.shape[-1]

    def started(self, name: str) -> Tensor | None:
        """Return a buffer, after sequences that start with this token have got their initial state there."""
        buffer = self.buffers.get(name)
        if buffer is None or id(buffer) in self.steps.started:
            return buffer
        self.steps.started.add(id(buffer))
        continues = (self.steps.first > self.steps.padding).reshape(-1, *[1] * (buffer.dim() - 1))
        return buffer.copy_(torch.where(continues, buffer, self.initial.get(name, 0.0)))

    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **kwargs: Any
    ) -> Tensor:
        """Append columns, [B, C, n], to a window, and return it with them."""
        self.started(f"{CONVOLUTION}{state_idx}")
        return super().update_conv_state(conv_states, state_idx, conv_kernel_size, **kwargs)

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **kwargs: Any) -> Tensor:
        """Replace a state, and return it."""
        self.steps.started.add(id(self.recurrent_states[state_idx]))
        return super().update_recurrent_state(recurrent_states, state_idx, **kwargs)


class AttendingStateLayer(StateLayer, CacheLayer):  # pyright: ignore[reportIncompatibleMethodOverride] - never called
    """A layer that has states and caches keys and values."""

    def __init__(self, buffers: torch.nn.Module, steps: Steps):
        CacheLayer.__init__(self, buffers, steps)
        StateLayer.__init__(self, buffers, steps)


class SlidingStateLayer(StateLayer, SlidingCacheLayer):  # pyright: ignore[reportIncompatibleMethodOverride] - never called
    """A layer that has states and caches keys and values of a sliding window."""

    def __init__(self, buffers: torch.nn.Module, steps: Steps):
        SlidingCacheLayer.__init__(self, buffers, steps)
        StateLayer.__init__(self, buffers, steps)
