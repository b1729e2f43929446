"""The small programs as one writes them in jax, and the modules that jax makes of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.module_size.programs import Program

jax: Any = importlib.import_module("jax")  # it has no types where it is not installed
jnp: Any = importlib.import_module("jax.numpy")
lax: Any = jax.lax
nn: Any = jax.nn

_NCHW = ("NCHW", "OIHW", "NCHW")


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * weight + bias


def _rms_norm(x: Any, weight: Any) -> Any:
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * weight


def _group_norm(x: Any, weight: Any, bias: Any) -> Any:
    groups = x.reshape(2, 2, 2, 8, 8)
    mean, var = groups.mean((2, 3, 4), keepdims=True), groups.var((2, 3, 4), keepdims=True)
    normal = ((groups - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape)
    return normal * weight[:, None, None] + bias[:, None, None]


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    y = jnp.einsum("...j,kj->...k", x, weight)
    return y if bias is None else y + bias


def _half_linear(x: Any, weight: Any) -> Any:
    return _linear(x.astype(jnp.bfloat16), weight.astype(jnp.bfloat16)).astype(jnp.float32)


def _attention(q: Any, k: Any, v: Any, *, is_causal: bool = False) -> Any:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8**0.5
    if is_causal:
        scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", nn.softmax(scores), v)


def _conv(x: Any, weight: Any, bias: Any = None, *, padding: str = "SAME", groups: int = 1) -> Any:
    y = lax.conv_general_dilated(x, weight, (1, 1), padding, dimension_numbers=_NCHW, feature_group_count=groups)
    return y if bias is None else y + bias[:, None, None]


def _pool(x: Any, initial: float, function: Any) -> Any:
    return lax.reduce_window(x, initial, function, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def _rotary(x: Any, cos: Any, sin: Any) -> Any:
    first, second = jnp.split(x, 2, -1)
    return x * cos + jnp.concatenate((-second, first), -1) * sin


def _masked_fill(x: Any) -> Any:
    return jnp.where(jnp.triu(jnp.ones((4, 4)), 1).astype(bool), -jnp.inf, x)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": jnp.add,
    "add_scalar": lambda x: x * 2 + 1,
    "relu": nn.relu,
    "gelu": partial(nn.gelu, approximate=False),
    "gelu_tanh": nn.gelu,
    "silu": nn.silu,
    "hardswish": nn.hard_swish,
    "clamp": lambda x: jnp.clip(x, -1, 2),
    "where": lambda x, y: jnp.where(x > 0, x, y),
    "masked_fill": _masked_fill,
    "softmax": nn.softmax,
    "log_softmax": nn.log_softmax,
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "argmax": lambda x: x.argmax(-1),
    "cumsum": lambda x: jnp.cumsum(x, -1),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "matmul": jnp.matmul,
    "matmul_batched": jnp.matmul,
    "matmul_broadcast": jnp.matmul,
    "linear": _linear,
    "linear_rank_3": _linear,
    "linear_bf16": _half_linear,
    "einsum_ij_kj_ik": partial(jnp.einsum, "ij,kj->ik"),
    "einsum_bhqd_bhkd_bhqk": partial(jnp.einsum, "bhqd,bhkd->bhqk"),
    "einsum_bqhd_bkhd_bhqk": partial(jnp.einsum, "bqhd,bkhd->bhqk"),
    "einsum_i_j_ij": partial(jnp.einsum, "i,j->ij"),
    "attention": _attention,
    "attention_causal": partial(_attention, is_causal=True),
    "swiglu": lambda x, gate, up, down: _linear(nn.silu(_linear(x, gate)) * _linear(x, up), down),
    "conv2d": _conv,
    "conv2d_depthwise": partial(_conv, groups=4),
    "conv_relu_conv": lambda x, v, w: _conv(nn.relu(_conv(x, v, padding="VALID")), w, padding="VALID"),
    "conv_transpose2d": lambda x, w: lax.conv_transpose(
        x, w, (2, 2), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW"), transpose_kernel=True
    ),
    "max_pool2d": lambda x: _pool(x, -jnp.inf, lax.max),
    "avg_pool2d": lambda x: _pool(x, 0.0, lax.add) / 4,
    "global_pool": lambda x, w: _linear(x.mean((2, 3)), w),
    "upsample_nearest": lambda x: jnp.repeat(jnp.repeat(x, 2, 2), 2, 3),
    "embedding": lambda ids, table, positions: table[ids] + positions,
    "index_select": lambda x: x[jnp.array([0, 2, 1])],
    "cat_and_chunk": lambda x, y: jnp.split(jnp.concatenate((x, y), 1), 2, 1),
    "split_heads": lambda x: x.reshape(2, 6, 2, 4).transpose(0, 2, 1, 3),
    "merge_heads": lambda x: x.transpose(0, 2, 1, 3).reshape(2, 6, 8),
    "rotary": _rotary,
}


def jax_module(program: Program) -> Any:
    """Return jax's StableHLO module of ``program``, in jax's bindings."""
    inputs = [jnp.asarray(each.numpy()) for each in program.build()[1]]
    return jax.jit(FUNCTIONS[program.name]).lower(*inputs).compiler_ir("stablehlo")
