"""Gradient of scaled dot-product attention."""

from __future__ import annotations

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.matmul.matmul import matmul
from fx_importer.decompositions.nn.attention import attention_weights_of, repeat_heads, scale_factor
from fx_importer.fx_graph.operators import aten


@decomposes(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value, with attention weights recomputed from ``logsumexp``.

    (n, heads, L, E) and (n, heads, S, E), where ``key`` and ``value`` may have fewer heads; (n, heads, L), or the
    weights themselves, (n, heads, L, S), which torch's decomposition of the forward operator returns instead. Low
    precision is computed in float32. Eager's operator ignores ``dropout_p``: the forward one raises for it.
    """
    dtypes = (query.dtype, key.dtype, value.dtype)
    if query.dtype in (torch.float16, torch.bfloat16):
        grad, query, key, value, out = (tensor.float() for tensor in (grad, query, key, value, out))
    groups = query.shape[1] // key.shape[1]
    key, value = repeat_heads(key, groups), repeat_heads(value, groups)
    factor = scale_factor(query, scale)
    if logsumexp.dim() == query.dim():
        weights = logsumexp.to(query.dtype)
    else:
        weights = attention_weights_of(logsumexp, query, key, attn_mask, is_causal, scale)
    of_weights = matmul(grad, value.transpose(-2, -1))
    of_scores = weights * (of_weights - torch.sum(grad * out, -1, keepdim=True)) * factor
    result = (
        matmul(of_scores, key),
        _sum_repeated_heads(matmul(of_scores.transpose(-2, -1), query), groups),
        _sum_repeated_heads(matmul(weights.transpose(-2, -1), grad), groups),
    )
    return result[0].to(dtypes[0]), result[1].to(dtypes[1]), result[2].to(dtypes[2])


def _sum_repeated_heads(x: Tensor, groups: int) -> Tensor:
    """Sum the heads, axis 1, that are repetitions of one head."""
    if groups == 1:
        return x
    batch, heads, *rest = x.shape
    return torch.sum(x.reshape(batch, heads // groups, groups, *rest), 2)
