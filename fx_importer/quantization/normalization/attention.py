"""Attention as products and a softmax, which have integer forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, fx

from fx_importer.quantization.normalization.inlining import inline

HUGE = 1e9
"""Values of at least this magnitude are masks."""


def attention_as_products(node: fx.Node, constant: Callable[[fx.Node], Tensor | None]) -> None:
    """Replace ``scaled_dot_product_attention`` without dropout by products and a softmax.

    A mask of bools, or a known one as `_excludes` says, is a ``where`` with negative infinity; another is added.
    """
    dropout = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
    if dropout or node.meta["val"].dim() < 3:
        return
    mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
    known = constant(mask) if isinstance(mask, fx.Node) else None
    excludes = known is not None and _excludes(known)
    inline(node, lambda *args, **kwargs: _attention(excludes, *args, **kwargs))


def _excludes(mask: Tensor) -> bool:
    """Return whether an added ``mask`` is zero or beyond `HUGE`, and zero somewhere in each row.

    Unlike negative infinities, a row of these values has a softmax without NaN.
    """
    allowed = mask == 0
    return mask.dtype != torch.bool and bool((allowed | (mask <= -HUGE)).all() and allowed.any(-1).all())


def _attention(
    excludes: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return ``softmax(query @ key.T * scale + mask) @ value``: the formula of torch's documentation.

    ``excludes`` says that an added mask has nothing but zeros and values beyond `HUGE`.
    """
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        key, value = (_repeated(tensor, query.shape[-3] // tensor.shape[-3]) for tensor in (key, value))
    batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    query, key, value = (
        tensor if tensor.shape[:-2] == batch else tensor.expand(*batch, -1, -1) for tensor in (query, key, value)
    )
    scores = torch.matmul(query, key.transpose(-2, -1)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    rows, columns = scores.shape[-2:]
    if is_causal:
        attn_mask = torch.arange(columns) <= torch.arange(rows).reshape(-1, 1)
    elif attn_mask is not None and excludes:
        attn_mask = attn_mask > -HUGE
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.matmul(torch.softmax(scores, -1), value)


def _repeated(x: Tensor, count: int) -> Tensor:
    """Return ``x[..., H, L, E]`` with each head ``count`` times."""
    *batch, heads, length, depth = x.shape
    return x.unsqueeze(-3).expand(*batch, heads, count, length, depth).reshape(*batch, heads * count, length, depth)
