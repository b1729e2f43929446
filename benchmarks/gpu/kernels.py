"""Ten Triton kernels: a function that launches each of them, its inputs, and the same function in PyTorch.

The file is copied to the device, see `benchmarks.gpu.prepare_kernels`.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# Triton declares neither that it makes `constexpr` of numbers, nor launch options.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def vector_add(x, y):
    out, n = torch.empty_like(x), x.numel()
    add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, block=1024)
    return out


@triton.jit
def softmax_kernel(x, out, stride, columns, block: tl.constexpr):
    at = tl.arange(0, block)
    row = tl.program_id(0) * stride
    values = tl.load(x + row + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row + at, powers / tl.sum(powers, axis=0), mask=at < columns)


def softmax(x):
    out = torch.empty_like(x)
    rows, columns = x.shape
    softmax_kernel[(rows,)](x, out, x.stride(0), columns, block=1024, num_warps=8)
    return out


@triton.jit
def layer_norm_kernel(x, weight, bias, out, stride, columns, eps, block: tl.constexpr):
    at = tl.arange(0, block)
    inside = at < columns
    row = tl.program_id(0) * stride
    values = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    scaled = centred / tl.sqrt(variance + eps) * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(out + row + at, scaled, mask=inside)


def layer_norm(x, weight, bias):
    out = torch.empty_like(x)
    rows, columns = x.shape
    layer_norm_kernel[(rows,)](x, weight, bias, out, x.stride(0), columns, 1e-5, block=1024, num_warps=4)
    return out


@triton.jit
def matmul_kernel(a, b, c, m, n, k, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr):
    i = tl.program_id(0) * rows + tl.arange(0, rows)
    j = tl.program_id(1) * columns + tl.arange(0, columns)
    at = tl.arange(0, depth)
    total = tl.zeros((rows, columns), dtype=tl.float32)
    for start in range(0, k, depth):
        inside_a = (i[:, None] < m) & (start + at[None, :] < k)
        inside_b = (start + at[:, None] < k) & (j[None, :] < n)
        left = tl.load(a + i[:, None] * k + start + at[None, :], mask=inside_a, other=0.0)
        right = tl.load(b + (start + at[:, None]) * n + j[None, :], mask=inside_b, other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.bfloat16), mask=(i[:, None] < m) & (j[None, :] < n))


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, 128), triton.cdiv(n, 128))
    matmul_kernel[grid](a, b, c, m, n, k, rows=128, columns=128, depth=64, num_warps=8, num_stages=3)
    return c


@triton.jit
def attention_kernel(q, k, v, out, length, scale, width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):
    """Compute causal attention of a block of rows of one head, with the maximum and the sum so far (FlashAttention)."""
    head = tl.program_id(1) * length * width
    i = tl.program_id(0) * rows + tl.arange(0, rows)
    at = tl.arange(0, width)
    query = tl.load(q + head + i[:, None] * width + at[None, :], mask=i[:, None] < length, other=0.0)
    top = tl.full((rows,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((rows,), dtype=tl.float32)
    mixed = tl.zeros((rows, width), dtype=tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * rows, columns):
        j = start + tl.arange(0, columns)
        key = tl.load(k + head + j[None, :] * width + at[:, None], mask=j[None, :] < length, other=0.0)
        scores = tl.dot(query, key) * (scale * 1.44269504)
        scores = tl.where((j[None, :] <= i[:, None]) & (j[None, :] < length), scores, -float("inf"))
        new = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new[:, None])
        old = tl.exp2(top - new)
        value = tl.load(v + head + j[:, None] * width + at[None, :], mask=j[:, None] < length, other=0.0)
        mixed = tl.dot(weights.to(tl.bfloat16), value, mixed * old[:, None])
        total = total * old + tl.sum(weights, axis=1)
        top = new
    place = out + head + i[:, None] * width + at[None, :]
    tl.store(place, (mixed / total[:, None]).to(tl.bfloat16), mask=i[:, None] < length)


def attention(q, k, v):
    out = torch.empty_like(q)
    batch, heads, length, _ = q.shape
    grid = (triton.cdiv(length, 64), batch * heads)
    attention_kernel[grid](q, k, v, out, length, 0.125, width=64, rows=64, columns=64, num_warps=4, num_stages=2)
    return out


@triton.jit
def swiglu_kernel(gate, up, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    left = tl.load(gate + at, mask=inside).to(tl.float32)
    right = tl.load(up + at, mask=inside).to(tl.float32)
    tl.store(out + at, (left * tl.sigmoid(left) * right).to(tl.bfloat16), mask=inside)


def swiglu(gate, up):
    out, n = torch.empty_like(gate), gate.numel()
    swiglu_kernel[(triton.cdiv(n, 1024),)](gate, up, out, n, block=1024)
    return out


@triton.jit
def rms_norm_kernel(x, weight, out, stride, columns, eps, block: tl.constexpr):
    at = tl.arange(0, block)
    inside = at < columns
    row = tl.program_id(0) * stride
    values = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(values * values, axis=0) / columns + eps)
    scaled = values * scale * tl.load(weight + at, mask=inside).to(tl.float32)
    tl.store(out + row + at, scaled.to(tl.bfloat16), mask=inside)


def rms_norm(x, weight):
    out = torch.empty_like(x)
    rows, columns = x.shape
    rms_norm_kernel[(rows,)](x, weight, out, x.stride(0), columns, 1e-5, block=1024, num_warps=4)
    return out


@triton.jit
def rotary_kernel(x, cos, sin, out, length, half: tl.constexpr):
    """Rotate the pairs of elements of a row, ``half`` apart, by the angles of its position."""
    row, at = tl.program_id(0), tl.arange(0, half)
    left, right = tl.load(x + row * 2 * half + at), tl.load(x + row * 2 * half + half + at)
    angle = row % length * half + at
    c, s = tl.load(cos + angle), tl.load(sin + angle)
    tl.store(out + row * 2 * half + at, left * c - right * s)
    tl.store(out + row * 2 * half + half + at, right * c + left * s)


def rotary(x, cos, sin):
    out = torch.empty_like(x)
    heads, length, _ = x.shape
    rotary_kernel[(heads * length,)](x, cos, sin, out, length, half=64, num_warps=2)
    return out


def rotary_in_torch(x, cos, sin):
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


@triton.jit
def int8_matmul_kernel(a, b, scales, c, m, n, k, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr):
    """Multiply rows of ``a`` by int8 columns of ``b``, each with a scale."""
    i = tl.program_id(0) * rows + tl.arange(0, rows)
    j = tl.program_id(1) * columns + tl.arange(0, columns)
    at = tl.arange(0, depth)
    total = tl.zeros((rows, columns), dtype=tl.float32)
    for start in range(0, k, depth):
        inside_a = (i[:, None] < m) & (start + at[None, :] < k)
        inside_b = (start + at[:, None] < k) & (j[None, :] < n)
        left = tl.load(a + i[:, None] * k + start + at[None, :], mask=inside_a, other=0.0)
        right = tl.load(b + (start + at[:, None]) * n + j[None, :], mask=inside_b, other=0)
        total = tl.dot(left, right.to(tl.bfloat16), total)
    scale = tl.load(scales + j, mask=j < n, other=0.0)
    scaled = (total * scale[None, :]).to(tl.bfloat16)
    tl.store(c + i[:, None] * n + j[None, :], scaled, mask=(i[:, None] < m) & (j[None, :] < n))


def int8_matmul(a, b, scales):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 128))
    int8_matmul_kernel[grid](a, b, scales, c, m, n, k, rows=64, columns=128, depth=64, num_warps=4, num_stages=3)
    return c


@triton.jit
def cumsum_kernel(x, out, columns, block: tl.constexpr):
    at = tl.arange(0, block)
    row = tl.program_id(0) * columns
    values = tl.load(x + row + at, mask=at < columns, other=0.0)
    tl.store(out + row + at, tl.cumsum(values, axis=0), mask=at < columns)


def cumsum(x):
    out = torch.empty_like(x)
    cumsum_kernel[(x.shape[0],)](x, out, x.shape[1], block=1024, num_warps=4)
    return out


def arguments(device: str = "cpu", small: bool = False) -> dict[str, tuple[torch.Tensor, ...]]:
    """Return the inputs of each kernel; small ones for tests."""
    draws = torch.Generator().manual_seed(0)

    def normal(*shape, dtype=torch.float32):
        return torch.randn(shape, generator=draws).to(dtype).to(device)

    bf16, size, length = torch.bfloat16, 96 if small else 2048, 80 if small else 1024
    return {
        "vector_add": (normal(1000 if small else 10_000_000), normal(1000 if small else 10_000_000)),
        "softmax": (normal(8 if small else 4096, 1000),),
        "layer_norm": (normal(8 if small else 4096, 1000), normal(1000), normal(1000)),
        "matmul": (normal(size, size, dtype=bf16), normal(size, size, dtype=bf16)),
        "attention": tuple(normal(1, 2 if small else 16, length, 64, dtype=bf16) for _ in range(3)),
        "swiglu": tuple(normal(8 if small else 4096, 1000, dtype=bf16) for _ in range(2)),
        "rms_norm": (normal(8 if small else 4096, 1000, dtype=bf16), normal(1000, dtype=bf16)),
        "rotary": (normal(2 if small else 32, length, 128), normal(length, 64).cos(), normal(length, 64).sin()),
        "int8_matmul": (
            normal(size, size, dtype=bf16),
            torch.randint(-128, 128, (size, size), generator=draws, dtype=torch.int8).to(device),
            normal(size).abs() / 64,
        ),
        "cumsum": (normal(8 if small else 4096, 1000),),
    }


EAGER: dict[str, Callable[..., Any]] = {
    "vector_add": torch.add,
    "softmax": lambda x: F.softmax(x, -1),
    "layer_norm": lambda x, weight, bias: F.layer_norm(x, (x.shape[-1],), weight, bias),
    "matmul": torch.matmul,
    "attention": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "swiglu": lambda gate, up: F.silu(gate) * up,
    "rms_norm": lambda x, weight: F.rms_norm(x, (x.shape[-1],), weight, 1e-5),
    "rotary": rotary_in_torch,
    "int8_matmul": lambda a, b, scales: ((a @ b.to(a.dtype)).float() * scales).to(a.dtype),
    "cumsum": lambda x: x.cumsum(-1),
}
LAUNCH: dict[str, Callable[..., Any]] = {
    "vector_add": vector_add,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "matmul": matmul,
    "attention": attention,
    "swiglu": swiglu,
    "rms_norm": rms_norm,
    "rotary": rotary,
    "int8_matmul": int8_matmul,
    "cumsum": cumsum,
}
