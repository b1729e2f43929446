"""The attention function and the masks that models of transformers take from its registries, for `cache_layers`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from fx_importer.errors import UsageError

ATTENTION, FUSED_ATTENTION = "fx_importer", "fx_importer_fused"
"""The names of our attention function in transformers' registries: of `attention`, and of it with ``fused``."""


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    *,
    fused: bool = False,
    **others: Any,
) -> tuple[Tensor, None]:
    """Return attention of (B, H, n, D) over (B, Hkv, L, D), as (B, n, H, D): transformers' signature.

    With ``softcap`` c, scores s are c * tanh(s / c). ``s_aux`` [H] are sinks: the score of one more key of each head,
    whose value is zero. With ``fused``, one query reads keys and values of half precision in sums of products of
    elements, for compilers that fuse these with the conversion to float32.
    """
    if others.get("position_bias") is not None:
        raise UsageError(f"{type(module).__name__} attends with a bias, which fx_importer.llm does not handle")
    grouped = query.shape[1] != key.shape[1]
    summed = fused and key.dtype in (torch.float16, torch.bfloat16) and _is_one(query)
    if softcap is None and s_aux is None and not summed:
        result = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attention_mask, scale=scaling, enable_gqa=grouped
        )
    else:
        result = _grouped_attention(query, key, value, attention_mask, scaling, softcap, s_aux, summed=summed)
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
    *,
    summed: bool,
) -> Tensor:
    batch, heads, steps, width = query.shape
    groups, length = key.shape[1:3]
    rows = (batch, groups, heads // groups * steps)  # the heads that share a key, one below the other
    grouped = query.reshape(*rows, width)
    if summed:
        scores = (grouped.float().unsqueeze(3) * key.unsqueeze(2).float()).sum(-1)
    else:
        scores = torch.matmul(grouped, key.transpose(2, 3)).float()
    scores = scores * (width**-0.5 if scaling is None else scaling)
    scores = scores if softcap is None else torch.tanh(scores / softcap) * softcap
    scores = scores.reshape(batch, heads, steps, length)
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -torch.inf)
    if sinks is not None:
        sink = sinks.float().reshape(1, heads, 1, 1).expand(batch, heads, steps, 1)
        scores = torch.cat((scores, sink), -1)
    weights = torch.softmax(scores, -1)[..., :length]
    if mask is not None:  # a row of padding sees nothing
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
    **others: Any,
) -> Tensor:
    """Return the mask of a kind of layer, [B, 1, n, L], true where a query sees a key: transformers' signature.

    ``kv_offset`` is what `CacheLayer.get_mask_sizes` returns: the positions of keys, [B, L], which also say what is
    padding. So ``mask_function`` of numbers of sequences, heads, queries and keys need not know of a ring. Other caches
    give the position of the first key. ``q_offset`` is that of the first query, [] of all or [B] of each sequence.
    """
    if not isinstance(kv_offset, Tensor):
        kv_offset = (kv_offset + torch.arange(kv_length)).expand(batch_size, -1)
    sequences = torch.arange(batch_size).reshape(-1, 1, 1, 1)
    queries = q_offset.reshape(-1, 1) if isinstance(q_offset, Tensor) else q_offset
    queries = (queries + torch.arange(q_length)).reshape(-1, 1, q_length, 1)
    keys = kv_offset.reshape(batch_size, 1, 1, kv_length)
    seen = mask_function(sequences, torch.zeros_like(sequences), queries, keys)
    return seen.expand(batch_size, -1, q_length, kv_length)


AttentionInterface.register(ATTENTION, attention)
AttentionInterface.register(FUSED_ATTENTION, functools.partial(attention, fused=True))
for _name in (ATTENTION, FUSED_ATTENTION):
    AttentionMaskInterface.register(_name, mask)
