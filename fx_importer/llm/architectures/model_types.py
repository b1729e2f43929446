"""Models whose cache is an object of their own, not layers of transformers' `Cache`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from fx_importer.llm.architectures.layers_cache import LayersCache
from fx_importer.llm.architectures.state_layers import RECURRENCE, StateLayer


@dataclass(frozen=True)
class LayerTensors:
    """The tensors that a layer caches, as they are after one token of one sequence."""

    key: Tensor | None = None
    value: Tensor | None = None
    window: int | None = None
    states: Mapping[str, Tensor] = field(default_factory=dict)
    """The states by the names of their buffers in `StateLayer`."""
    cross: Mapping[str, Tensor] = field(default_factory=dict)
    """The keys and values of the encoder's results, by the names of their buffers in `CrossLayer`."""


@dataclass(frozen=True)
class OwnCache:
    """How to read the cache that a model makes, and how to make one of layers."""

    tensors: Callable[[Any], list[LayerTensors]]
    """Return the tensors by layer."""
    cache: Callable[[Sequence[Any]], Any]
    """Return the cache that the model gets, for layers of `model_cache`."""
    initial: Mapping[str, float] = field(default_factory=dict)
    """The initial values of states that do not start with zeros, by the name of the buffer."""
    prepare: Callable[[Any], None] = lambda model: None
    """Change the model so that its forward changes nothing but the cache."""


def _recurrent(tensors: Sequence[Tensor]) -> LayerTensors:
    return LayerTensors(states={f"{RECURRENCE}{index}": tensor for index, tensor in enumerate(tensors)})


def _started(layer: StateLayer) -> list[Tensor]:
    tensors = (layer.started(f"{RECURRENCE}{index}") for index in range(layer.number_of_states))
    return [tensor for tensor in tensors if tensor is not None]


def _minimax_tensors(cache: Any) -> list[LayerTensors]:
    layers = []
    for index in range(len(cache)):
        state = cache.get_linear_cache(index) if index < len(cache.linear_cache) else []
        if isinstance(state, Tensor):
            layers.append(_recurrent([state]))
        else:
            layers.append(LayerTensors(cache.layers[index].keys, cache.layers[index].values))
    return layers


@functools.cache
def _minimax_class() -> type[LayersCache]:
    from transformers.models.minimax.modeling_minimax import MiniMaxCache

    class MiniMaxLayersCache(LayersCache, MiniMaxCache):
        """A cache of the type that MiniMax asks for, with our layers."""

        def __init__(self, layers: list[Any]):
            Cache.__init__(self, layers=layers)
            self.linear_cache: list[Tensor] = []

        def __len__(self) -> int:
            return len(self.layers)

        def get_linear_cache(self, layer_idx: Any) -> Tensor | None:
            return self.get_recurrent_state(layer_idx)

        def set_linear_cache(self, layer_idx: Any, linear_cache: Tensor) -> None:
            self.update_recurrent_state(linear_cache, layer_idx)

    return MiniMaxLayersCache


def _without_scaling(model: Any) -> None:
    """Keep RWKV from dividing its weights in place, and its activations, which float16 alone needs."""
    model.config.rescale_every = 0


def _xlstm_cache(layers: Sequence[StateLayer]) -> Any:
    states = {number: tuple(_started(layer)) for number, layer in enumerate(layers)}
    return SimpleNamespace(rnn_state=states, seqlen_offset=torch.zeros(1, dtype=torch.int64))


_OWN_CACHES = {
    "minimax": OwnCache(_minimax_tensors, lambda layers: _minimax_class()(layers=list(layers))),
    "rwkv": OwnCache(
        lambda cache: [_recurrent(cache)],
        lambda layers: _started(layers[0]),
        initial={f"{RECURRENCE}4": -1e30},  # the largest exponent so far
        prepare=_without_scaling,
    ),
    "xlstm": OwnCache(lambda cache: [_recurrent(states) for states in cache.rnn_state.values()], _xlstm_cache),
}
"""By the model type of transformers."""


def own_cache(model: Any) -> OwnCache | None:
    """Return how to handle the cache of ``model``; None if it takes transformers' `DynamicCache`."""
    return _OWN_CACHES.get(model.config.model_type)
