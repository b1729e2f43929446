"""Attention and the layers around it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from .harness import Case, check, normal, table

QUERY = normal(2, 4, 5, 8)


class Rotary(nn.Module):
    """Rotary position embedding that rotates halves, as in Llama."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(x.shape[-2])[:, None] / 10.0 ** torch.linspace(0, 1, x.shape[-1] // 2)
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin


class Cached(nn.Module):
    """One decoding step: keys and values of earlier tokens are inputs, and longer ones are results."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
        k, v = torch.cat([k, q], 2), torch.cat([v, q * 0.5], 2)
        return F.scaled_dot_product_attention(q, k, v), k, v


class Windowed(nn.Module):
    """Sliding-window attention: each token attends to itself and the two before."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        order = torch.arange(x.shape[-2])
        distance = order[:, None] - order
        return F.scaled_dot_product_attention(x, x, x, attn_mask=(distance >= 0) & (distance < 3))


@pytest.mark.slow_rows(
    "^rotary-tosa$",
    "^decoder_layer-tosa$",
    "^encoder_layer_norm_first-tosa$",
    "^decoder_layer-stablehlo$",
    "^encoder_layer-stablehlo$",
    "^encoder_layer_norm_first-stablehlo$",
    "^encoder_layer-tosa$",
    "^multihead-stablehlo$",
    "^rotary-stablehlo$",
    "^multihead-tosa$",
    "^(decoder_layer|encoder_layer_norm_first)-linalg",
    "^(encoder_layer|windowed|scaled|grouped_queries)-linalg",
)
@table(
    Case("plain", lambda: (F.scaled_dot_product_attention, (QUERY, QUERY, QUERY))),
    Case("causal", lambda: (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (QUERY,))),
    Case("scaled", lambda: (lambda q: F.scaled_dot_product_attention(q, q, q, scale=0.3), (QUERY,))),
    Case("float_mask", lambda: (lambda q, m: F.scaled_dot_product_attention(q, q, q, m), (QUERY, normal(5, 5)))),
    Case("heads_of_no_elements", lambda: (F.scaled_dot_product_attention, (QUERY[..., :0], QUERY[..., :0], QUERY))),
    Case("windowed", lambda: (Windowed(), (QUERY,))),
    Case(
        "grouped_keys_and_values",
        lambda: (
            lambda q, k, v: (
                F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
                F.scaled_dot_product_attention(q, v, k, enable_gqa=True),
                F.scaled_dot_product_attention(q, q, k, enable_gqa=True),
            ),
            (QUERY, QUERY[:, :2], QUERY[:, 1:2]),
        ),
    ),
    Case(
        "grouped_queries",
        lambda: (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), (QUERY, QUERY[:, :2])),
    ),
    Case("cached", lambda: (Cached(), (normal(2, 4, 1, 8), QUERY, QUERY))),
    Case("rotary", lambda: (Rotary(), (QUERY,))),
    Case("multihead", lambda: (nn.MultiheadAttention(8, 2, batch_first=True), (QUERY[0], QUERY[0], QUERY[0]))),
    Case("encoder_layer", lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (normal(2, 5, 8),))),
    Case(
        "encoder_layer_norm_first",
        lambda: (nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True), (normal(5, 2, 8),)),
    ),
    Case(
        "decoder_layer",
        lambda: (nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), (normal(2, 3, 8), normal(2, 5, 8))),
    ),
)
def test_attention(case, output_type):
    check(case, output_type)
