"""The attention function and the masks that we register with transformers, for `cache_layers`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask

from fx_importer.frontend.torch_patches import tracing

ATTENTION, FUSED_ATTENTION = "fx_importer", "fx_importer_fused"
"""The names of `attention` in transformers' registries, without and with ``fused``."""


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    *,
    fused: bool = False,
    **others: Any,
) -> tuple[Tensor, None]:
    """Return attention of (B, H, n, D) over (B, Hkv, L, D), as (B, n, H, D), with transformers' signature.

    With ``softcap`` c, scores s become c * tanh(s / c). ``s_aux`` [H] holds attention sinks: per head, the score of
    one extra key whose value is zero. ``position_bias``, [B or 1, H, n, L], is added to scores, as in T5. With
    ``fused``, a single query and a half-precision cache use elementwise multiplies and sums instead of matmuls, for
    compilers that fuse these with the conversion to float32.
    """
    if attention_mask is not None and attention_mask.dtype != torch.bool:  # numbers to add, by the model's own code
        position_bias = attention_mask if position_bias is None else position_bias + attention_mask
        attention_mask = None
    grouped = query.shape[1] != key.shape[1]
    summed = fused and key.dtype in (torch.float16, torch.bfloat16) and _is_one(query)
    if softcap is None and s_aux is None and not summed:
        mask = attention_mask
        if position_bias is not None:
            bias = position_bias.to(query.dtype)
            mask = bias if mask is None else torch.where(mask, bias, -torch.inf)
        result = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, mask, scale=scaling, enable_gqa=grouped
        )
    else:
        result = _grouped_attention(
            query, key, value, attention_mask, scaling, softcap, s_aux, position_bias, summed=summed
        )
    return result.transpose(1, 2).contiguous(), None


def _is_one(query: Tensor) -> bool:
    return isinstance(query.shape[2], int) and query.shape[2] == 1


def _grouped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    softcap: float | None,
    sinks: Tensor | None,
    bias: Tensor | None,
    *,
    summed: bool,
) -> Tensor:
    batch, heads, steps, width = query.shape
    groups, length = key.shape[1:3]
    rows = (batch, groups, heads // groups * steps)  # the heads that share a key are stacked
    grouped = query.reshape(*rows, width)
    if summed:
        scores = (grouped.float().unsqueeze(3) * key.unsqueeze(2).float()).sum(-1)
    else:
        scores = torch.matmul(grouped, key.transpose(2, 3)).float()
    scores = scores * (width**-0.5 if scaling is None else scaling)
    scores = scores if softcap is None else torch.tanh(scores / softcap) * softcap
    scores = scores.reshape(batch, heads, steps, length)
    scores = scores if bias is None else scores + bias
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -torch.inf)
    if sinks is not None:
        sink = sinks.float().reshape(1, heads, 1, 1).expand(batch, heads, steps, 1)
        scores = torch.cat((scores, sink), -1)
    weights = torch.softmax(scores, -1)[..., :length]
    if mask is not None:  # a padding row attends to no key
        weights = weights.masked_fill(mask.any(-1, keepdim=True).logical_not(), 0.0)
    weights = weights.reshape(*rows, length)
    if summed:
        attended = (weights.unsqueeze(4) * value.unsqueeze(2).float()).sum(3).to(value.dtype)
    else:
        attended = torch.matmul(weights.to(value.dtype), value)
    return attended.reshape(batch, heads, steps, value.shape[3])


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Tensor | int,
    kv_offset: Tensor | int,
    mask_function: Callable[..., Tensor],
    attention_mask: Tensor | None = None,
    **others: Any,
) -> Tensor:
    """Return the mask for one layer type, [B, 1, n, L], true where a query sees a key, with transformers' signature.

    ``kv_offset`` comes from `CacheLayer.get_mask_sizes`: the positions of the keys, [B, L], which also mark padding.
    ``mask_function`` takes indices of sequences, heads, queries and keys, so it need not handle ring buffers. Other
    caches, and none, pass the position of the first key, and ``attention_mask`` [B, L], false for padding. ``q_offset``
    is the position of the first query, [] or per sequence [B].
    """
    real = None
    if not isinstance(kv_offset, Tensor):
        real = attention_mask
        kv_offset = (kv_offset + torch.arange(kv_length)).expand(batch_size, -1)
    sequences = torch.arange(batch_size).reshape(-1, 1, 1, 1)
    queries = q_offset.reshape(-1, 1) if isinstance(q_offset, Tensor) else q_offset
    queries = (queries + torch.arange(q_length)).reshape(-1, 1, q_length, 1)
    keys = kv_offset.reshape(batch_size, 1, 1, kv_length)
    seen = mask_function(sequences, torch.zeros_like(sequences), queries, keys)
    if real is not None:
        seen = seen & real.bool().reshape(batch_size, 1, 1, kv_length)
    return seen.expand(batch_size, -1, q_length, kv_length)


def uses_interface(model: PreTrainedModel) -> bool:
    """Return whether the code of ``model`` calls an attention function of transformers' registry, not its own."""
    return type(model)._can_set_attn_implementation()


def _added_mask(*args: Any, dtype: torch.dtype = torch.float32, **kwargs: Any) -> Tensor:
    """Return `mask` as numbers to add to scores, as `transformers.masking_utils.eager_mask` does: 0 where true."""
    return torch.where(mask(*args, **kwargs), torch.zeros((), dtype=dtype), torch.finfo(dtype).min)


@contextmanager
def own_attention() -> Iterator[None]:
    """Give models with attention code of their own the masks for our cache in the body, for one thread at a time."""
    ours = {eager_mask: _added_mask, sdpa_mask: mask}
    with tracing():
        names = {name: ours[theirs] for name, theirs in ALL_MASK_ATTENTION_FUNCTIONS.items() if theirs in ours}
        for name, function in names.items():
            ALL_MASK_ATTENTION_FUNCTIONS[name] = function  # of this instance; it precedes the registry
        try:
            yield
        finally:
            for name in names:
                del ALL_MASK_ATTENTION_FUNCTIONS[name]


AttentionInterface.register(ATTENTION, attention)
AttentionInterface.register(FUSED_ATTENTION, functools.partial(attention, fused=True))
for _name in (ATTENTION, FUSED_ATTENTION):
    AttentionMaskInterface.register(_name, mask)
