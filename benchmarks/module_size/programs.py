"""Small programs, of a few operators each, in PyTorch and, where it has one, in jax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Function(nn.Module):
    """Calls a function of tensors."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        """Return what the function returns."""
        return self.function(*inputs)


@dataclass(frozen=True)
class Program:
    """One program: ``model`` and its inputs, and the name of its function in `jax_programs`, if it has one."""

    name: str
    model: Callable[..., Any]
    """A function of tensors, or a function without parameters that returns a model in eval mode."""
    inputs: tuple[Any, ...]
    """Shapes of float32 inputs, or tensors."""
    in_jax: bool = True

    def build(self) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        """Return the model and its inputs, the same whenever it is called."""
        torch.manual_seed(0)
        model = self.model().eval() if isinstance(self.model, _Built) else Function(self.model)
        return model, tuple(each if isinstance(each, torch.Tensor) else torch.randn(each) for each in self.inputs)


class _Built:
    """A function that returns a model with weights of its own."""

    def __init__(self, build: Callable[[], nn.Module]):
        self.build = build

    def __call__(self) -> nn.Module:
        return self.build()


def _convolutions() -> nn.Module:
    """Return three convolutions, each with a fresh batch normalization and a ReLU."""
    return nn.Sequential(*(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in "123"))


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(approximate="tanh"), nn.Linear(16, 4))


def _rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def _swiglu(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def _half_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.linear(x.bfloat16(), weight.bfloat16()).float()


def _embedding(ids: torch.Tensor, table: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return F.embedding(ids, table) + positions


_IDS = torch.arange(10).reshape(2, 5) % 7
_ROWS = torch.tensor([0, 2, 1])
_HEADS = (1, 2, 6, 8)
_IMAGE = (2, 4, 8, 8)

_POINTWISE = (
    Program("add", torch.add, ((3, 4), (3, 4))),
    Program("add_scalar", lambda x: x * 2 + 1, ((3, 4),)),
    Program("relu", F.relu, ((3, 4),)),
    Program("gelu", F.gelu, ((3, 4),)),
    Program("gelu_tanh", partial(F.gelu, approximate="tanh"), ((3, 4),)),
    Program("silu", F.silu, ((3, 4),)),
    Program("hardswish", F.hardswish, ((3, 4),)),
    Program("clamp", lambda x: x.clamp(-1, 2), ((3, 4),)),
    Program("where", lambda x, y: torch.where(x > 0, x, y), ((3, 4), (3, 4))),
    Program("masked_fill", lambda x: x.masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf")), ((2, 4, 4),)),
)
_REDUCTIONS = (
    Program("softmax", partial(F.softmax, dim=-1), ((3, 4),)),
    Program("log_softmax", partial(F.log_softmax, dim=-1), ((3, 4),)),
    Program("mean", lambda x: x.mean(-1), ((3, 4),)),
    Program("var", lambda x: x.var(-1, correction=0), ((3, 4),)),
    Program("argmax", lambda x: x.argmax(-1).int(), ((3, 4),)),
    Program("cumsum", lambda x: x.cumsum(-1), ((3, 4),)),
    Program("layer_norm", lambda x, w, b: F.layer_norm(x, (8,), w, b), ((3, 8), (8,), (8,))),
    Program("rms_norm", _rms_norm, ((3, 8), (8,))),
    Program("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), (_IMAGE, (4,), (4,))),
)
_PRODUCTS = (
    Program("matmul", torch.matmul, ((3, 4), (4, 5))),
    Program("matmul_batched", torch.matmul, ((2, 3, 4), (2, 4, 5))),
    Program("matmul_broadcast", torch.matmul, ((2, 6, 3, 4), (4, 5))),
    Program("linear", F.linear, ((3, 4), (5, 4), (5,))),
    Program("linear_rank_3", F.linear, ((2, 3, 4), (5, 4), (5,))),
    Program("linear_bf16", _half_linear, ((3, 4), (5, 4))),
    Program("einsum_ij_kj_ik", partial(torch.einsum, "ij,kj->ik"), ((3, 4), (5, 4))),
    Program("einsum_bhqd_bhkd_bhqk", partial(torch.einsum, "bhqd,bhkd->bhqk"), (_HEADS, _HEADS)),
    Program("einsum_bqhd_bkhd_bhqk", partial(torch.einsum, "bqhd,bkhd->bhqk"), ((1, 6, 2, 8), (1, 6, 2, 8))),
    Program("einsum_i_j_ij", partial(torch.einsum, "i,j->ij"), ((3,), (4,))),
    Program("attention", F.scaled_dot_product_attention, (_HEADS, _HEADS, _HEADS)),
    Program("attention_causal", partial(F.scaled_dot_product_attention, is_causal=True), (_HEADS, _HEADS, _HEADS)),
    Program("swiglu", _swiglu, ((3, 4), (6, 4), (6, 4), (4, 6))),
    Program("mlp", _Built(_mlp), ((3, 8),), in_jax=False),
)
_IMAGES = (
    Program("conv2d", partial(F.conv2d, padding=1), (_IMAGE, (6, 4, 3, 3), (6,))),
    Program("conv2d_depthwise", partial(F.conv2d, padding=1, groups=4), (_IMAGE, (4, 1, 3, 3))),
    Program(
        "conv_relu_conv", lambda x, v, w: F.conv2d(F.relu(F.conv2d(x, v)), w), (_IMAGE, (4, 4, 3, 3), (4, 4, 1, 1))
    ),
    Program("conv_transpose2d", partial(F.conv_transpose2d, stride=2), (_IMAGE, (4, 6, 2, 2))),
    Program("conv_bn_relu_3", _Built(_convolutions), (_IMAGE,), in_jax=False),
    Program("max_pool2d", partial(F.max_pool2d, kernel_size=2), (_IMAGE,)),
    Program("avg_pool2d", partial(F.avg_pool2d, kernel_size=2), (_IMAGE,)),
    Program("global_pool", lambda x, w: F.linear(F.adaptive_avg_pool2d(x, 1).flatten(1), w), (_IMAGE, (5, 4))),
    Program("upsample_nearest", partial(F.interpolate, scale_factor=2), (_IMAGE,)),
)
_MOVES = (
    Program("embedding", _embedding, (_IDS, (7, 8), (5, 8))),
    Program("index_select", lambda x: x.index_select(0, _ROWS), ((3, 4),)),
    Program("cat_and_chunk", lambda x, y: torch.cat((x, y), 1).chunk(2, 1), ((3, 4), (3, 4))),
    Program("split_heads", lambda x: x.view(2, 6, 2, 4).transpose(1, 2), ((2, 6, 8),)),
    Program("merge_heads", lambda x: x.transpose(1, 2).reshape(2, 6, 8), ((2, 2, 6, 4),)),
    Program("rotary", _rotary, ((1, 2, 6, 8), (6, 8), (6, 8))),
)
PROGRAMS = {each.name: each for each in (*_POINTWISE, *_REDUCTIONS, *_PRODUCTS, *_IMAGES, *_MOVES)}
"""Every program, by name."""
