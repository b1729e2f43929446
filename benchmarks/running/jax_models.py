"""Models of `run_time_models.py` as one writes them in jax, with the weights of the models in PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import transformers as T

from benchmarks.run_time_models import MOBILENET, MobileNet, Outputs
from fx_importer.errors import UsageError

jax: Any = importlib.import_module("jax")  # it has no types where it is not installed
jnp: Any = importlib.import_module("jax.numpy")

Weights = Mapping[str, Any]
"""By name in the state dict."""


def to_jax(tensor: torch.Tensor) -> Any:
    """Return a copy of a tensor. 64-bit integers become 32-bit ones, as is usual in jax."""
    if tensor.dtype is torch.bfloat16:
        return jnp.asarray(tensor.detach().view(torch.int16).numpy()).view(jnp.bfloat16)
    return jnp.array(tensor.detach().numpy())


def weights_of(model: torch.nn.Module) -> dict[str, Any]:
    """Return the weights of a model. Kernels of convolutions are ``[height, width, inner, outer]``, as in jax."""
    held = model.state_dict().items()
    return {key: to_jax(value.permute(2, 3, 1, 0).contiguous() if value.dim() == 4 else value) for key, value in held}


def to_torch(array: Any) -> torch.Tensor:
    """Return a copy of an array."""
    return torch.from_dlpack(array).clone()


def program_of(model: Any) -> Callable[..., tuple[Any, ...]]:
    """Return the program of ``model`` in jax, a function of its weights and inputs. Raises `UsageError` without one."""
    if isinstance(model, MobileNet):
        return _mobilenet
    inner = model.model if isinstance(model, Outputs) else model
    for kind, program in _PROGRAMS.items():
        if isinstance(inner, kind):
            return partial(program, inner.config)
    raise UsageError("no program in jax is written for this model")


def _linear(weights: Weights, name: str, x: Any) -> Any:
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def _layer_norm(weights: Weights, name: str, x: Any, epsilon: float) -> Any:
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    normal = ((wide - mean) * jax.lax.rsqrt(variance + epsilon)).astype(x.dtype)
    return normal * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _heads(x: Any, count: int) -> Any:
    """``[batch, length, heads * size]`` → ``[batch, heads, length, size]``."""
    batch, length, width = x.shape
    return x.reshape(batch, length, count, width // count).transpose(0, 2, 1, 3)


def _attention(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
    """``[batch, heads, length, size]`` each → ``[batch, length, heads * size]``."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores.astype(jnp.float32), -1).astype(query.dtype), value)
    batch, heads, length, size = mixed.shape
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


def _bert(config: Any, weights: Weights, tokens: Any) -> tuple[Any, Any]:
    norm = partial(_layer_norm, weights, epsilon=config.layer_norm_eps)
    at = "model.embeddings"
    x = weights[f"{at}.word_embeddings.weight"][tokens]
    x += weights[f"{at}.token_type_embeddings.weight"][0] + weights[f"{at}.position_embeddings.weight"][: x.shape[1]]
    x = norm(f"{at}.LayerNorm", x)
    for i in range(config.num_hidden_layers):
        at = f"model.encoder.layer.{i}"
        parts = (_linear(weights, f"{at}.attention.self.{each}", x) for each in ("query", "key", "value"))
        mixed = _attention(*(_heads(each, config.num_attention_heads) for each in parts))
        x = norm(f"{at}.attention.output.LayerNorm", x + _linear(weights, f"{at}.attention.output.dense", mixed))
        wide = jax.nn.gelu(_linear(weights, f"{at}.intermediate.dense", x), approximate=False)
        x = norm(f"{at}.output.LayerNorm", x + _linear(weights, f"{at}.output.dense", wide))
    return x, jnp.tanh(_linear(weights, "model.pooler.dense", x[:, 0]))


def _rms_norm(weight: Any, x: Any, epsilon: float) -> Any:
    wide = x.astype(jnp.float32)
    return weight * (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + epsilon)).astype(x.dtype)


def _rotated(x: Any, cos: Any, sin: Any) -> Any:
    low, high = jnp.split(x, 2, -1)
    return x * cos + jnp.concatenate([-high, low], -1) * sin


def _llama(config: Any, weights: Weights, tokens: Any) -> tuple[Any]:
    x = weights["model.embed_tokens.weight"][tokens]
    length, size = x.shape[1], config.hidden_size // config.num_attention_heads
    base = config.rope_parameters["rope_theta"]
    frequencies = 1.0 / base ** (jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * jnp.concatenate([frequencies, frequencies])
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    groups = config.num_attention_heads // config.num_key_value_heads
    for i in range(config.num_hidden_layers):
        at = f"model.layers.{i}"
        y = _rms_norm(weights[f"{at}.input_layernorm.weight"], x, config.rms_norm_eps)
        query = _heads(_linear(weights, f"{at}.self_attn.q_proj", y), config.num_attention_heads)
        key = _heads(_linear(weights, f"{at}.self_attn.k_proj", y), config.num_key_value_heads)
        value = _heads(_linear(weights, f"{at}.self_attn.v_proj", y), config.num_key_value_heads)
        key, value = (jnp.repeat(each, groups, 1) for each in (_rotated(key, cos, sin), value))
        mixed = _attention(_rotated(query, cos, sin), key, value, jnp.tril(jnp.ones((length, length), bool)))
        x += _linear(weights, f"{at}.self_attn.o_proj", mixed)
        y = _rms_norm(weights[f"{at}.post_attention_layernorm.weight"], x, config.rms_norm_eps)
        gate = jax.nn.silu(_linear(weights, f"{at}.mlp.gate_proj", y))
        x += _linear(weights, f"{at}.mlp.down_proj", gate * _linear(weights, f"{at}.mlp.up_proj", y))
    return (_rms_norm(weights["model.norm.weight"], x, config.rms_norm_eps),)


def _conv_norm(weights: Weights, name: str, x: Any, stride: int = 1, relu: bool = True) -> Any:
    """A convolution and a batch norm of ``[batch, height, width, channels]``, as models in jax have their images."""
    kernel = weights[f"{name}.convolution.weight"]
    padding = [((kernel.shape[0] - 1) // 2,) * 2] * 2
    x = jax.lax.conv_general_dilated(x, kernel, (stride,) * 2, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    norm = {key: weights[f"{name}.normalization.{key}"] for key in ("weight", "bias", "running_mean", "running_var")}
    scale = norm["weight"] * jax.lax.rsqrt(norm["running_var"] + 1e-5)
    x = (x - norm["running_mean"]) * scale + norm["bias"]
    return jax.nn.relu(x) if relu else x


def _resnet(config: Any, weights: Weights, images: Any) -> tuple[Any]:
    x = _conv_norm(weights, "model.resnet.embedder.embedder", images.transpose(0, 2, 3, 1), 2)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    for i, depth in enumerate(config.depths):
        for j in range(depth):
            at, stride = f"model.resnet.encoder.stages.{i}.layers.{j}", 2 if i and not j else 1
            y = _conv_norm(weights, f"{at}.layer.0", x)
            y = _conv_norm(weights, f"{at}.layer.1", y, stride)
            y = _conv_norm(weights, f"{at}.layer.2", y, relu=False)
            shortcut = f"{at}.shortcut"
            if f"{shortcut}.convolution.weight" in weights:
                x = _conv_norm(weights, shortcut, x, stride, relu=False)
            x = jax.nn.relu(x + y)
    return (_linear(weights, "model.classifier.1", x.mean((1, 2))),)


def _normalized(weights: Weights, at: str, x: Any, stride: int = 1, groups: int = 1) -> Any:
    """The convolution ``at`` of a `Sequential` and the batch norm after it, of ``[batch, height, width, channels]``."""
    before, _, index = at.rpartition(".")
    kernel, norm = weights[f"{at}.weight"], f"{before}.{int(index) + 1}"
    padding = [(kernel.shape[0] // 2,) * 2] * 2
    layout = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(
        x, kernel, (stride,) * 2, padding, dimension_numbers=layout, feature_group_count=groups
    )
    scale = weights[f"{norm}.weight"] * jax.lax.rsqrt(weights[f"{norm}.running_var"] + 1e-5)
    return (x - weights[f"{norm}.running_mean"]) * scale + weights[f"{norm}.bias"]


def _mobilenet(weights: Weights, images: Any) -> tuple[Any]:
    x = jax.nn.hard_swish(_normalized(weights, "0.0", images.transpose(0, 2, 3, 1), 2))
    for i, (_, _, stride) in enumerate(MOBILENET, 1):
        x = jax.nn.hard_swish(_normalized(weights, f"{i}.0", x))
        x = jax.nn.hard_swish(_normalized(weights, f"{i}.3", x, stride, groups=x.shape[-1]))
        x = _normalized(weights, f"{i}.6", x)
    return (_linear(weights, f"{len(MOBILENET) + 3}", x.mean((1, 2))),)


_PROGRAMS: dict[type, Callable[..., tuple[Any, ...]]] = {
    T.BertModel: _bert,
    T.LlamaModel: _llama,
    T.ResNetForImageClassification: _resnet,
}
