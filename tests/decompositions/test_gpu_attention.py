"""Attention kernels that a GPU records, beside PyTorch's attention on the CPU, which has none of them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer import UnsupportedProgramError, lower
from fx_importer.fx_graph.operators import aten

torch.manual_seed(0)
Q, K, V = (torch.randn(2, 4, 5, 8) for _ in range(3))
FEWER = torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
BIAS = torch.randn(2, 4, 5, 5)


def logsumexp(bias: Tensor | None = None) -> Tensor:
    scores = Q @ K.transpose(-1, -2) / 8**0.5
    return torch.logsumexp(
        scores.masked_fill(~torch.ones(5, 5).tril().bool(), -torch.inf) if bias is None else scores + bias, -1
    )


def flash(q, k, v):
    return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[:2]


def flash_of_fewer_heads(q, k, v):
    return aten._scaled_dot_product_flash_attention(q, k, v)[:1]


def efficient(q, k, v, bias):
    return aten._scaled_dot_product_efficient_attention(q, k, v, bias, True)[:2]


def efficient_without_sums(q, k, v):
    return aten._scaled_dot_product_efficient_attention(q, k, v, None, False, 0.0, True, scale=0.5)[:2]


def cudnn(q, k, v):
    return aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True)[:2]


CAUSAL = F.scaled_dot_product_attention(Q, K, V, is_causal=True)
CASES = {
    "flash": (flash, (Q, K, V), (CAUSAL, logsumexp())),
    "fewer heads": (flash_of_fewer_heads, (Q, *FEWER), (F.scaled_dot_product_attention(Q, *FEWER, enable_gqa=True),)),
    "efficient": (
        efficient,
        (Q, K, V, BIAS),
        (F.scaled_dot_product_attention(Q, K, V, BIAS), F.pad(logsumexp(BIAS), (0, 27), value=torch.inf)),
    ),
    "without sums": (
        efficient_without_sums,
        (Q, K, V),
        (F.scaled_dot_product_attention(Q, K, V, is_causal=True, scale=0.5), torch.zeros(2, 4, 0)),
    ),
    "cudnn": (cudnn, (Q, K, V), (CAUSAL, logsumexp().unsqueeze(-1))),
}


@pytest.mark.slow_rows("^(cudnn|efficient)-linalg")
@pytest.mark.parametrize(
    "case, output_type", [*((name, "linalg-on-tensors") for name in CASES), ("efficient", "stablehlo")]
)
def test_attention(case, output_type):
    kernel, inputs, expected = CASES[case]
    results = lower(kernel, *inputs, output_type=output_type).caller(backend="jit")(*inputs)
    torch.testing.assert_close(results, expected, rtol=2e-5, atol=2e-5)


def flash_backward(grad, q, k, v, out, sums):
    unread = torch.zeros((), dtype=torch.int64)
    return aten._scaled_dot_product_flash_attention_backward(
        grad, q, k, v, out, sums, unread, unread, 5, 5, 0.0, True, unread, unread
    )


def efficient_backward(grad, q, k, v, out, sums):
    unread, wanted = torch.zeros((), dtype=torch.int64), [True, True, True, False]
    return aten._scaled_dot_product_efficient_attention_backward(
        grad, q, k, v, None, out, F.pad(sums, (0, 27)), unread, unread, 0.0, wanted, True
    )[:3]


@pytest.mark.parametrize("kernel", [flash_backward, efficient_backward])
def test_gradients(kernel):
    leaves = Q.clone().requires_grad_(), K.clone().requires_grad_(), V.clone().requires_grad_()
    out, grad = F.scaled_dot_product_attention(*leaves, is_causal=True), torch.randn(2, 4, 5, 8)
    expected = torch.autograd.grad(out, leaves, grad)
    inputs = grad, Q, K, V, out.detach(), logsumexp()
    results = lower(kernel, *inputs, output_type="linalg-on-tensors").run(*inputs)
    torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-5)


def test_a_causal_mask_between_other_lengths_is_refused():
    def kernel(q, k, v):
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]

    with pytest.raises(UnsupportedProgramError, match="_scaled_dot_product_flash_attention"):
        lower(kernel, Q, *FEWER, output_type="linalg-on-tensors")
