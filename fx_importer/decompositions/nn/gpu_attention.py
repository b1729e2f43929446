"""Attention kernels that PyTorch records on a GPU, and their gradients.

They are flash, memory-efficient and cuDNN's attention: (n, heads, L, E), (n, heads, S, E), (n, heads, S, V) →
(n, heads, L, V). They also return the logsumexp of each row, and states of random numbers, which nothing reads without
dropout. With dropout they are refused: the device draws the numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_importer.decompositions.backward.attention_backward import attention_backward
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.decompositions.nn.attention import flash_attention_for_cpu
from fx_importer.fx_graph.operators import aten

_ROWS = 32
"""The memory-efficient kernel rounds the rows of its logsumexp up to a multiple of this."""


@decomposes(aten._scaled_dot_product_flash_attention.default)
def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """Return attention, the logsumexp, two empty places, both lengths, and three tensors that nothing reads.

    Between other lengths the kernel's causal mask ends at the last column; PyTorch records none.
    """
    if dropout_p or return_debug_mask or (is_causal and not statically_known_true(query.shape[2] == key.shape[2])):
        return NotImplemented
    out, total = flash_attention_for_cpu(query, key, value, 0.0, is_causal, scale=scale)
    unread = torch.zeros((), dtype=torch.int64, device=query.device)
    return out, total.float(), None, None, query.shape[2], key.shape[2], unread, unread, out.new_zeros(0)


@decomposes(aten._scaled_dot_product_efficient_attention.default)
def efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """Return attention, the logsumexp with rows up to a multiple of 32, and two tensors that nothing reads."""
    if dropout_p:
        return NotImplemented
    out, total = flash_attention_for_cpu(query, key, value, 0.0, is_causal, attn_mask=attn_bias, scale=scale)
    rows = query.shape[2]
    if compute_log_sumexp:
        total = torch.nn.functional.pad(total.float(), (0, -rows % _ROWS), value=torch.inf)
    unread = torch.zeros((), dtype=torch.int64, device=query.device)
    return out, total if compute_log_sumexp else total.new_zeros(*total.shape[:2], 0).float(), unread, unread


@decomposes(aten._scaled_dot_product_cudnn_attention.default)
def cudnn_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """Return attention, the logsumexp as a column, and what nothing reads, as `flash_attention` does."""
    if dropout_p or return_debug_mask:
        return NotImplemented
    out, total = flash_attention_for_cpu(query, key, value, 0.0, is_causal, attn_mask=attn_bias, scale=scale)
    unread = torch.zeros((), dtype=torch.int64, device=query.device)
    lengths = query.shape[2], key.shape[2]
    return out, total.float().unsqueeze(-1), None, None, *lengths, unread, unread, None


@decomposes(aten._scaled_dot_product_flash_attention_backward.default)
def flash_attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> Any:
    """Return the gradients of query, key and value."""
    if dropout_p:
        return NotImplemented
    return attention_backward(grad_out, query, key, value, out, logsumexp, 0.0, is_causal, scale=scale)


@decomposes(aten._scaled_dot_product_efficient_attention_backward.default)
def efficient_attention_backward(
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """Return the gradients of query, key and value; that of a bias is not computed."""
    if dropout_p or (attn_bias is not None and grad_input_mask[3]):
        return NotImplemented
    rows = logsumexp.narrow(2, 0, query.shape[2])
    gradients = attention_backward(
        grad_out_, query, key, value, out, rows, 0.0, is_causal, attn_mask=attn_bias, scale=scale
    )
    return *gradients, None


GPU_ATTENTION = (
    *(flash_attention, efficient_attention, cudnn_attention),
    *(flash_attention_backward, efficient_attention_backward),
)
"""The rules of this file."""
