"""A causal language model of transformers with a static cache as state: what is exported.

The model's own code runs. Two things are given to it through transformers' interfaces: the layers of the cache, and the
attention function.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache
from transformers.masking_utils import sdpa_mask

from fx_importer.errors import UsageError

ATTENTION = "fx_importer"
"""The name of our attention function in transformers' registry."""


class Decoder(torch.nn.Module):
    """Next-token logits of a model, and its cache: buffers ``cache.0.key``, ``cache.0.value``, …, [B, Hkv, L, D].

    Args:
        model: of transformers, in evaluation mode. Its attention function becomes ours.
        batch: the number of sequences, B.
        context: the number of positions that the cache holds, L.
    """

    def __init__(self, model: PreTrainedModel, batch: int, context: int):
        super().__init__()
        model.set_attn_implementation(ATTENTION)
        model.set_experts_implementation("batched_mm")  # of mixtures: the only one of static shapes in each dtype
        self._model: PreTrainedModel
        object.__setattr__(self, "_model", model)  # not as a submodule: weights keep their names, those in its files
        for name, child in model.named_children():
            self.add_module(name, child)
        self.context = context
        self.cache = torch.nn.ModuleList()
        for sizes in _cache_sizes(model):
            layer = torch.nn.Module()
            for name, (heads, width) in zip(("key", "value"), sizes, strict=True):
                layer.register_buffer(name, torch.zeros(batch, heads, context, width, dtype=model.dtype))
            self.cache.append(layer)

    def forward(self, tokens: Tensor, position: Tensor, padding: Tensor, last: Tensor | None = None) -> Tensor:
        """Append ``tokens`` to the sequences, and return the logits after one of them.

        Args:
            tokens: int64 [B, n].
            position: int64 [], the position in the cache of the first token.
            padding: int64 [B], how many positions at the start of each sequence are padding.
            last: int64 [], the index of the token after which logits are wanted; by default that of the last one.

        Returns:
            The logits, [B, vocabulary].
        """
        steps = position + torch.arange(tokens.shape[1])
        logits = self._model(
            input_ids=tokens,
            attention_mask=torch.arange(self.context).unsqueeze(0) >= padding.unsqueeze(1),
            position_ids=(steps.unsqueeze(0) - padding.unsqueeze(1)).clamp(min=0),
            past_key_values=Cache(layers=[_Layer(each, steps, position) for each in self.cache]),
            use_cache=True,
            logits_to_keep=1 if last is None else last.reshape(1),
        ).logits
        return logits.squeeze(1)


class _Layer(CacheLayerMixin):
    """A layer of the cache, which writes new rows at ``steps`` [n] and is read whole."""

    is_compileable = True
    is_sliding = False

    def __init__(self, buffers: torch.nn.Module, steps: Tensor, position: Tensor):
        super().__init__()
        self.keys, self.values = buffers.get_buffer("key"), buffers.get_buffer("value")
        self.steps, self.position = steps, position
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: buffers hold the cache."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new rows, [B, Hkv, n, D], and return the whole."""
        assert self.keys is not None
        assert self.values is not None
        self.keys.index_copy_(2, self.steps, key_states.to(self.keys.dtype))
        self.values.index_copy_(2, self.steps, value_states.to(self.values.dtype))
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of columns of a mask, and the position of the first."""
        return self.get_max_length(), 0

    def get_seq_length(self) -> Any:
        """Return the position of the first new row, a tensor."""
        return self.position

    def get_max_length(self) -> int:
        """Return the number of rows."""
        assert self.keys is not None
        return self.keys.shape[2]


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Return attention of (B, H, n, D) over (B, Hkv, L, D), as (B, n, H, D): transformers' signature.

    With ``softcap`` c, scores s are c * tanh(s / c).
    """
    if any(others.get(name) is not None for name in ("s_aux", "position_bias")):
        raise UsageError(f"{type(module).__name__} attends with sinks or a bias, which fx_importer.llm does not handle")
    grouped = query.shape[1] != key.shape[1]
    if softcap is None:
        result = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attention_mask, scale=scaling, enable_gqa=grouped
        )
    else:
        result = _capped_attention(query, key, value, attention_mask, scaling, softcap)
    return result.transpose(1, 2).contiguous(), None


def _capped_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None, softcap: float
) -> Tensor:
    batch, heads, steps, width = query.shape
    groups, length = key.shape[1:3]
    rows = (batch, groups, heads // groups * steps)  # the heads that share a key, one below the other
    scores = torch.matmul(query.reshape(*rows, width), key.transpose(2, 3)).float()
    scores = scores * (width**-0.5 if scaling is None else scaling)
    scores = (torch.tanh(scores / softcap) * softcap).reshape(batch, heads, steps, length)
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -torch.inf)
    weights = torch.softmax(scores, -1)
    if mask is not None:  # a row of padding sees nothing
        weights = weights.masked_fill(mask.any(-1, keepdim=True).logical_not(), 0.0)
    attended = torch.matmul(weights.to(value.dtype).reshape(*rows, length), value)
    return attended.reshape(batch, heads, steps, value.shape[3])


def _mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """Return the mask of a kind of layer, [B, 1, n, L], true where a query sees a key; never None for a causal one."""
    return sdpa_mask(*args, **kwargs | {"allow_is_causal_skip": False})


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, _mask)


def _cache_sizes(model: PreTrainedModel) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the heads and the width of the keys, and of the values, of each layer, from a call on nothing."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        cache = DynamicCache()
        model(input_ids=torch.zeros(1, 1, dtype=torch.int64), past_key_values=cache, use_cache=True)
    sizes: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for each in cache.layers:
        if not isinstance(each, CacheLayerMixin) or each.keys is None or each.values is None:
            raise UsageError(
                f"{type(model).__name__} has layers without keys and values ({type(each).__name__}), which "
                "fx_importer.llm does not handle: accepted are models that only attend"
            )
        sizes.append(((each.keys.shape[1], each.keys.shape[3]), (each.values.shape[1], each.values.shape[3])))
    return sizes
