"""Decompositions of scaled dot-product attention, and of the encoder layer around it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.matmul.matmul import matmul, matmul_transposed
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.torch_internals import EMPTY_HEADS_ATTEND


@decomposes(aten.scaled_dot_product_attention.default)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(scale * query @ key.T + mask) @ value``: (…, L, E), (…, S, E), (…, S, V) → (…, L, V).

    ``scale`` defaults to ``1 / sqrt(E)``. A fully masked row is zero, as in eager. Low precision is computed in
    float32. With ``enable_gqa``, a head of ``key`` and ``value`` serves several heads of ``query``.
    """
    dtype = query.dtype
    if dtype in (torch.float16, torch.bfloat16):
        query, key, value = query.float(), key.float(), value.float()
    if enable_gqa and key.shape[-3] != value.shape[-3]:
        key, value = (repeat_heads(tensor, query.shape[-3] // tensor.shape[-3]) for tensor in (key, value))
    grouped = enable_gqa and query.shape[-3] != key.shape[-3]
    weights = attention_weights(query, key, attn_mask, is_causal, scale, grouped=grouped)
    if dropout_p > 0.0:
        weights = torch.dropout(weights, dropout_p, True)
    if statically_known_true(query.shape[-1] == 0) and not EMPTY_HEADS_ATTEND:
        weights = torch.zeros_like(weights)
    if not grouped:
        return matmul(weights, value).to(dtype)
    return matmul(_by_key_head(weights, value), value).reshape(*weights.shape[:-1], value.shape[-1]).to(dtype)


@decomposes(aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_attention_for_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """Return attention for (n, heads, L, E), and each row's logsumexp, (n, heads, L).

    ``key`` and ``value`` may have fewer heads. The CPU kernel has no dropout. The logsumexp of a masked row is zero.
    """
    if dropout_p:
        return NotImplemented
    gqa = query.shape[1] != key.shape[1]
    out = scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=gqa)
    if query.dtype in (torch.float16, torch.bfloat16):
        query, key = query.float(), key.float()
    scores = _scores(query, key, attn_mask, is_causal, scale, grouped=gqa)
    total = torch.logsumexp(scores, -1)
    return out, total if attn_mask is None else total.masked_fill(_masked_out(attn_mask).all(-1), 0.0)


@decomposes(aten._transformer_encoder_layer_fwd.default)
def transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Any:
    """`torch.nn.TransformerEncoderLayer` in evaluation, (n, L, E) → (n, L, E), without a mask.

    Vaswani et al., Attention Is All You Need: attention and two linear layers, each with its residual and layer norm;
    the norm comes first if ``norm_first``.
    """
    if mask is not None or src.dim() != 3:
        return NotImplemented

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    x = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
    qkv = F.linear(x, qkv_weight, qkv_bias).unflatten(-1, (3, num_heads, embed_dim // num_heads))
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    mixed = F.scaled_dot_product_attention(query, key, value)
    x = src + F.linear(mixed.transpose(1, 2).flatten(2), proj_weight, proj_bias)
    x = x if norm_first else norm(x, norm_weight_1, norm_bias_1)
    wide = F.linear(norm(x, norm_weight_2, norm_bias_2) if norm_first else x, ffn_weight_1, ffn_bias_1)
    x = x + F.linear(F.gelu(wide) if use_gelu else F.relu(wide), ffn_weight_2, ffn_bias_2)
    return x if norm_first else norm(x, norm_weight_2, norm_bias_2)


def attention_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    *,
    grouped: bool = False,
) -> Tensor:
    """Return ``softmax(scale * query @ key.T + mask)``: (…, L, E), (…, S, E) → (…, L, S).

    If ``grouped``, a head of ``key`` serves several heads of ``query``.
    """
    weights = torch.softmax(_scores(query, key, attn_mask, is_causal, scale, grouped=grouped), -1)
    return _without_masked_rows(weights, attn_mask)


def attention_weights_of(
    logsumexp: Tensor, query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float | None
) -> Tensor:
    """Return `attention_weights`, given the logarithm of each row's sum of exponentials: (…, L)."""
    scores = _scores(query, key, attn_mask, is_causal, scale)
    weights = torch.exp(scores - logsumexp.to(scores.dtype).unsqueeze(-1))
    return _without_masked_rows(weights, attn_mask)


def _scores(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    *,
    grouped: bool = False,
) -> Tensor:
    """Return ``scale * query @ key.T + mask``."""
    scaled = query * scale_factor(query, scale)
    scores = matmul_transposed(_by_key_head(scaled, key) if grouped else scaled, key)
    if grouped:
        scores = scores.reshape(*scores.shape[:-3], *query.shape[-3:-1], key.shape[-2])
    if is_causal:
        rows = torch.arange(query.shape[-2], device=query.device).unsqueeze(1)
        columns = torch.arange(key.shape[-2], device=query.device).unsqueeze(0)
        scores = scores.masked_fill(columns > rows, -torch.inf)
    if attn_mask is None:
        return scores
    return (
        scores.masked_fill(_masked_out(attn_mask), -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    )


def scale_factor(query: Tensor, scale: float | None) -> float:
    """Return ``scale``, by default ``1 / sqrt(E)``; products of no elements are zero whatever it is."""
    if scale is not None:
        return scale
    width = query.shape[-1]
    return 1.0 if statically_known_true(width == 0) else width**-0.5


def _without_masked_rows(weights: Tensor, attn_mask: Tensor | None) -> Tensor:
    """Return ``weights`` with zeros in rows that ``attn_mask`` masks wholly."""
    return weights if attn_mask is None else weights.masked_fill(_masked_out(attn_mask).all(-1, keepdim=True), 0.0)


def _masked_out(attn_mask: Tensor) -> Tensor:
    """Return the positions that ``attn_mask`` masks out."""
    return attn_mask.logical_not() if attn_mask.dtype == torch.bool else attn_mask == -torch.inf


def _by_key_head(x: Tensor, key: Tensor) -> Tensor:
    """Put the heads of ``x`` that one head of ``key`` serves below each other: (…, H, L, E) → (…, Hk, H / Hk * L, E).

    ``key`` is read as it is then, and not repeated for each of them.
    """
    *batch, heads, rows, width = x.shape
    return x.reshape(*batch, key.shape[-3], heads // key.shape[-3] * rows, width)


def repeat_heads(x: Tensor, times: int) -> Tensor:
    """Repeat each head, axis -3, ``times`` times in a row."""
    if times == 1:
        return x
    heads, *rest = x.shape[-3:]
    return x.unsqueeze(-3).expand(*x.shape[:-2], times, *rest).reshape(*x.shape[:-3], heads * times, *rest)
