"""Triton kernels that compute in bfloat16, which triton's interpreter has as bits."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

import pytest
import torch

triton = pytest.importorskip("triton", reason="the extra 'triton' is not installed")

import triton.language as tl  # noqa: E402

from fx_importer import lower  # noqa: E402


@triton.jit
def arithmetic_kernel(x, y, out, n, block: tl.constexpr):
    at = tl.arange(0, block)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a + b)
    tl.store(out + n + at, a * b - a)
    tl.store(out + 2 * n + at, tl.where(a < b, a, -b))
    tl.store(out + 3 * n + at, tl.maximum(a, b))
    tl.store(out + 4 * n + at, (a.to(tl.float32) * 1.001).to(tl.bfloat16))
    tl.store(out + 5 * n + at, (at - 7).to(tl.bfloat16) / b)
    tl.store(out + 6 * n + at, tl.abs(a).to(tl.int32).to(tl.bfloat16))


def model(x, y):
    out = torch.empty(7, x.shape[0], dtype=x.dtype)
    arithmetic_kernel[(1,)](x, y, out, x.shape[0], block=64)
    return out


def test_arithmetic():
    x, y = torch.randn(64).bfloat16() * 3, torch.randn(64).bfloat16()
    whole = (torch.arange(64) - 7).bfloat16()
    expected = torch.stack(
        [
            *(x + y, x * y - x, torch.where(x < y, x, -y), torch.maximum(x, y)),
            *((x.float() * 1.001).bfloat16(), whole / y, x.abs().int().bfloat16()),
        ]
    )
    result = lower(model, x, y, output_type="linalg-on-tensors", strict=True).run(x, y)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


@triton.jit
def reductions_kernel(x, out, block: tl.constexpr):
    at = tl.arange(0, block)
    values = tl.load(x + at)
    tl.store(out, tl.sum(values, axis=0))
    tl.store(out + 1, tl.max(values, axis=0))
    tl.store(out + 2, tl.argmin(values, axis=0).to(tl.bfloat16))
    tl.store(out + 3 + at, tl.cumsum(values, axis=0))


def reductions(x):
    out = torch.empty(3 + x.shape[0], dtype=x.dtype)
    reductions_kernel[(1,)](x, out, block=16)
    return out


def test_reductions():
    x = torch.arange(-9, 7).bfloat16() / 4
    expected = [x.sum(), x.max(), x.argmin(), *x.float().cumsum(0)]
    result = lower(reductions, x, output_type="linalg-on-tensors", strict=True).run(x)
    torch.testing.assert_close(result, torch.stack([each.bfloat16() for each in expected]), rtol=0, atol=0)
