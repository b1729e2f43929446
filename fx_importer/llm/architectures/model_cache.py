"""The tensors of a transformers model's cache, as buffers, and the cache that its code gets for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from transformers import PreTrainedModel
from transformers.cache_utils import (
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

from fx_importer.errors import UsageError, first_line
from fx_importer.frontend.torch_patches import tracing
from fx_importer.llm.architectures.attention import uses_interface
from fx_importer.llm.architectures.cache_layers import CacheLayer, SlidingCacheLayer, Steps, zeros
from fx_importer.llm.architectures.causality import checked_causal
from fx_importer.llm.architectures.layers_cache import LayersCache
from fx_importer.llm.architectures.model_types import LayerTensors, own_cache
from fx_importer.llm.architectures.sources import CROSS_KEY, CROSS_VALUE, EncoderInput, has_encoder
from fx_importer.llm.architectures.state_layers import (
    CONVOLUTION,
    RECURRENCE,
    AttendingStateLayer,
    SlidingStateLayer,
    StateLayer,
)
from fx_importer.llm.architectures.vision import attends_to_prompt
from fx_importer.llm.source_lines import definition, raised_at

Shape = tuple[int, ...]
_ARGUMENTS = ("cache", "past_key_values", "cache_params", "state")
_LAYERS = (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    DummyLayer,
)
"""The layers of transformers' caches that `cache_layer` replaces. Others cache tensors that it does not know."""


def cache_argument(model: torch.nn.Module) -> str:
    """Return the name of a transformers model's cache argument, which changed in transformers 5.24.

    Raises:
        UsageError: if the model takes no cache.
    """
    parameters = inspect.signature(model.forward).parameters
    name = next((name for name in _ARGUMENTS if name in parameters), None)
    if name is None:
        raise UsageError(
            f"{type(model).__name__} takes no cache ({definition(type(model).forward)}): accepted are models of "
            f"transformers whose forward has an argument {', '.join(_ARGUMENTS[:-1])} or {_ARGUMENTS[-1]}"
        )
    return name


def model_cache(model: PreTrainedModel, layers: Sequence[Any]) -> Any:
    """Return the cache that the code of ``model`` gets, with our layers."""
    own = own_cache(model)
    if own is not None:
        return own.cache(layers)
    cache = LayersCache(layers=list(layers))
    cache.counts = not uses_interface(model) and not has_encoder(model.config)
    return cache


def cache_buffers(
    model: PreTrainedModel,
    shape: Callable[[int, int, int | None], Shape],
    batch: int | None,
    source: EncoderInput | None = None,
) -> torch.nn.ModuleList:
    """Return a module per layer, with zero-filled buffers ``key`` and ``value``, of `StateLayer` and `CrossLayer`.

    Args:
        model: a transformers model. A call with fake tensors determines what its layers cache.
        shape: returns the shape of a buffer of keys or values, given the number of key heads, their width, and the
            layer's window, if any.
        batch: the number of sequences of the states; None if the cache cannot hold states.
        source: the input of the encoder of ``model``; None if it has none.

    Raises:
        UsageError: if a layer caches something else, or the model is not a decoder that runs alone.
    """
    buffers = torch.nn.ModuleList()
    for layer in _cached(model) if source is None else _cached_of_both(model, source):
        if layer.states and batch is None:
            raise UsageError(
                f"{type(model).__name__} has layers with states, which a cache in pages does not hold: import the "
                "model with cache='static'"
            )
        module = torch.nn.Module()
        for name, tensor in (("key", layer.key), ("value", layer.value)):
            if tensor is not None:
                module.register_buffer(name, zeros(shape(tensor.shape[1], tensor.shape[3], layer.window), tensor.dtype))
        for name, tensor in layer.states.items():
            module.register_buffer(name, zeros((batch or 0, *tensor.shape[1:]), tensor.dtype))
        for name, tensor in layer.cross.items():
            heads, positions, width = tensor.shape[1:]
            positions = (source and source.positions) or positions
            module.register_buffer(name, zeros((batch or 0, heads, positions, width), tensor.dtype))
        buffers.append(module)
    return buffers


def _cached(model: PreTrainedModel) -> list[LayerTensors]:
    """Return what each layer caches after one token, as fake tensors."""
    name, own = cache_argument(model), own_cache(model)
    tokens = torch.zeros(1, 1, dtype=torch.int64)
    if own is not None:
        own.prepare(model)
    checked = nullcontext() if attends_to_prompt(model) else checked_causal(model)
    try:
        with tracing(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), checked:
            if own is not None:
                return own.tensors(getattr(model(input_ids=tokens, use_cache=True), name))
            cache = DynamicCache(config=model.config.get_text_config(decoder=True))
            model(input_ids=tokens, use_cache=True, **{name: cache})
    except UsageError:
        raise
    except Exception as error:  # of transformers, of any type
        raise _cannot_run(model, error) from error
    return [_tensors(model, layer) for layer in cache.layers]


def _cached_of_both(model: PreTrainedModel, source: EncoderInput) -> list[LayerTensors]:
    """Return what each layer of the decoder caches after one token of an encoder-decoder, as fake tensors."""
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    arguments = {
        "decoder_input_ids": torch.zeros(1, 1, dtype=torch.int64),
        cache_argument(model): cache,
    }
    try:
        with tracing(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            encoded = model.get_encoder()(**{source.argument: source.example(1, model.dtype, 1)}, return_dict=True)
            model(encoder_outputs=encoded, **arguments, use_cache=True)
    except Exception as error:  # of transformers, of any type
        raise _cannot_run(model, error) from error
    own = [_tensors(model, layer) for layer in cache.self_attention_cache.layers]
    cross = [_tensors(model, layer) for layer in cache.cross_attention_cache.layers]
    if not own or len(own) != len(cross):
        raise UsageError(
            f"the decoder of {type(model).__name__} ({definition(type(model))}) caches {len(own)} layers of its own "
            f"tokens and {len(cross)} of the source: accepted are decoders that cache both in each layer, in "
            "transformers' EncoderDecoderCache"
        )
    return [
        LayerTensors(ours.key, ours.value, ours.window, cross={CROSS_KEY: theirs.key, CROSS_VALUE: theirs.value})
        for ours, theirs in zip(own, cross, strict=True)
        if theirs.key is not None and theirs.value is not None
    ]


def _cannot_run(model: PreTrainedModel, error: Exception) -> UsageError:
    reason = first_line(error)
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        dtype = str(model.dtype).removeprefix("torch.")
        reason = f"in {dtype}, its code asks there for values of tensors ({reason}), on which a module cannot branch"
    return UsageError(
        f"{type(model).__name__} cannot run one token with an empty cache ({raised_at(error, model)}): {reason}"
    )


def _tensors(model: PreTrainedModel, layer: Any) -> LayerTensors:
    kind = type(layer)
    states: dict[str, Tensor] = {}
    if isinstance(layer, LinearAttentionCacheLayerMixin):
        for name, tensors in ((CONVOLUTION, layer.conv_states), (RECURRENCE, layer.recurrent_states)):
            states |= {f"{name}{index}": tensor for index, tensor in tensors.items() if tensor is not None}
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    attends = isinstance(keys, Tensor) and isinstance(values, Tensor)
    if kind not in _LAYERS or not (attends or states or kind is DummyLayer):
        what = "nothing" if kind in _LAYERS else f"what transformers' {kind.__name__} ({definition(kind)}) holds"
        raise UsageError(
            f"a layer of {type(model).__name__} ({definition(type(model))}) caches {what}: accepted are keys and "
            "values, windows of convolutions and recurrent states in layers of transformers' DynamicCache"
        )
    return LayerTensors(keys, values, getattr(layer, "sliding_window", None), states)


def cache_layer(buffers: torch.nn.Module, context: int, steps: Steps, initial: dict[str, float]) -> Any:
    """Return the layer for ``buffers``: a sliding one if it has fewer slots than ``context``.

    Args:
        buffers: a module of `cache_buffers`.
        context: the number of positions of a sequence.
        steps: the tokens to append.
        initial: see `StateLayer`.
    """
    names = {name for name, _ in buffers.named_buffers()} - {CROSS_KEY, CROSS_VALUE}
    if not names:
        return DummyLayer()
    if "key" not in names:
        return StateLayer(buffers, steps, initial)
    slides, states = buffers.get_buffer("key").shape[2] < context, names > {"key", "value"}
    if states:
        return (SlidingStateLayer if slides else AttendingStateLayer)(buffers, steps)
    return (SlidingCacheLayer if slides else CacheLayer)(buffers, steps)
