"""The cache that we pass to transformers models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from fx_importer.frontend.repeated_modules.watched_number import IndexedState, index_of


class LayersCache(Cache, IndexedState):
    """A cache with the given layers."""

    counts = False
    """Whether the model's code computes with the length of the cache in Python, which it then gets as 0."""

    def get_query_offset(self, layer_idx: int = 0) -> Any:
        """Return the position of the first new token, a tensor, for `attention.mask`."""
        return super().get_seq_length(layer_idx)

    def get_seq_length(self, layer_idx: Any = 0) -> Any:
        """Return the position of the first new token, a tensor; 0 if the cache `counts`.

        Such code gets the keys of all slots, the mask and the positions, with which it needs no length.
        `agreement.check_agreement` refuses models that need one.
        """
        return 0 if self.counts else super().get_seq_length(index_of(layer_idx))

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: Any, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write new keys and values to a layer, and return the keys and values that queries attend to."""
        return super().update(key_states, value_states, index_of(layer_idx), *args, **kwargs)

    def get_conv_state(self, layer_idx: Any, state_idx: int = 0) -> Tensor | None:
        """Return the window of a convolution, which the caller may write."""
        return self._started(layer_idx, f"conv{state_idx}")

    def get_recurrent_state(self, layer_idx: Any, state_idx: int = 0) -> Tensor | None:
        """Return a recurrent state, which the caller may write."""
        return self._started(layer_idx, f"recurrent{state_idx}")

    def _started(self, layer_idx: Any, name: str) -> Tensor | None:
        layer: Any = self.layers[index_of(layer_idx)]  # a StateLayer
        return layer.started(name)

    def update_conv_state(self, conv_states: Tensor, layer_idx: Any, state_idx: int = 0, **kwargs: Any) -> Tensor:
        """Append columns to the window of a convolution, and return it with them."""
        return super().update_conv_state(conv_states, index_of(layer_idx), state_idx, **kwargs)

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: Any, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        """Replace a recurrent state, and return it."""
        return super().update_recurrent_state(recurrent_states, index_of(layer_idx), state_idx, **kwargs)

    def is_recording_past(self, layer_idx: Any) -> bool:
        """Return false: the states are those after the last token."""
        return False

    def are_equal(self, one: int, other: int) -> bool:
        """Return whether two layers update their buffers in the same way."""
        ours, theirs = vars(self.layers[one]), vars(self.layers[other])
        return type(self.layers[one]) is type(self.layers[other]) and all(
            _is_alike(value, theirs[name]) for name, value in ours.items()
        )

    def tensors(self, number: int) -> dict[str, Tensor]:
        """Return the buffers of a layer, by the attribute that holds them."""
        return {
            path: tensor for name, value in vars(self.layers[number]).items() for path, tensor in _tensors(name, value)
        }


def _tensors(path: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _tensors(f"{path}.{key}", item)


def _is_alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_alike(value, other[key]) for key, value in one.items())
    if isinstance(one, Tensor):
        return (one.shape, one.dtype) == (other.shape, other.dtype)
    if isinstance(one, torch.SymInt):
        return isinstance(other, torch.SymInt) and one.node.expr == other.node.expr
    return one is other or (type(one) is int and one == other)
