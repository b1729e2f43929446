"""Some of the models as a user of jax writes them, with the weights of the PyTorch model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Weights = dict[str, Any]


def _linear(w: Weights, name: str, x: Any) -> Any:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def _norm(w: Weights, name: str, x: Any) -> Any:
    wide = x.astype(jnp.float32)
    mean, var = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(var + 1e-5)).astype(x.dtype) * w[f"{name}.weight"] + w[f"{name}.bias"]


def _attention(w: Weights, name: str, x: Any, heads: int, causal: bool) -> Any:
    batch, length, width = x.shape
    q, k, v = jnp.moveaxis(_linear(w, f"{name}.qkv", x).reshape(batch, length, 3, heads, width // heads), 2, 0)
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
    return _linear(w, f"{name}.out", mixed.reshape(batch, length, width))


def _block(w: Weights, name: str, x: Any, heads: int, causal: bool = False, after: bool = False) -> Any:
    def wide(y: Any) -> Any:
        return _linear(w, f"{name}.down", jax.nn.gelu(_linear(w, f"{name}.up", y), approximate=False))

    if after:
        x = _norm(w, f"{name}.first", x + _attention(w, name, x, heads, causal))
        return _norm(w, f"{name}.second", x + wide(x))
    x = x + _attention(w, name, _norm(w, f"{name}.first", x), heads, causal)
    return x + wide(_norm(w, f"{name}.second", x))


def bert(w: Weights, tokens: Any, heads: int = 12, layers: int = 12) -> Any:
    """BERT."""
    x = _norm(w, "norm", w["words.weight"][tokens] + w["places.weight"][: tokens.shape[1]])
    for at in range(layers):
        x = _block(w, f"layers.{at}", x, heads, after=True)
    return x


def gpt2(w: Weights, tokens: Any, heads: int = 12, layers: int = 12) -> Any:
    """GPT-2."""
    x = w["words.weight"][tokens] + w["places.weight"][: tokens.shape[1]]
    for at in range(layers):
        x = _block(w, f"layers.{at}", x, heads, causal=True)
    return _norm(w, "norm", x[:, -1]) @ w["words.weight"].T


def vit(w: Weights, image: Any, heads: int = 12, layers: int = 12) -> Any:
    """ViT."""
    axes = ("NCHW", "OIHW", "NCHW")
    x = jax.lax.conv_general_dilated(image, w["patches.weight"], (16, 16), "VALID", dimension_numbers=axes)
    x = x.reshape(*x.shape[:2], -1).transpose(0, 2, 1) + w["patches.bias"]
    start = jnp.broadcast_to(w["start"], (x.shape[0], 1, x.shape[2]))
    x = jnp.concatenate([start, x], 1) + w["places"]
    for at in range(layers):
        x = _block(w, f"layers.{at}", x, heads)
    return _linear(w, "head", _norm(w, "norm", x[:, 0]))


def mixtral(w: Weights, x: Any) -> Any:
    """All experts of a block, with the shares of two."""
    weights, chosen = jax.lax.top_k(jax.nn.softmax((x @ w["router.weight"].T).astype(jnp.float32)), 2)
    weights = weights / weights.sum(-1, keepdims=True)
    shares = jnp.zeros((x.shape[0], w["gate"].shape[0])).at[jnp.arange(x.shape[0])[:, None], chosen].set(weights)
    y = jax.nn.silu(jnp.einsum("tw,ewi->eti", x, w["gate"])) * jnp.einsum("tw,ewi->eti", x, w["up"])
    return (jnp.einsum("eti,eiw->etw", y, w["down"]) * shares.astype(x.dtype).T[:, :, None]).sum(0)


def addition(w: Weights, x: Any, y: Any) -> Any:
    """One addition."""
    del w
    return x + y


JAX_MODELS: dict[str, Callable[..., Any]] = {
    "addition": addition,
    "bert_base": bert,
    "tiny_bert": lambda w, tokens: bert(w, tokens, 2, 1),
    "gpt2": gpt2,
    "vit_b_16": vit,
    "mixtral_block": mixtral,
}
"""Each takes the weights by name, and the inputs."""
