"""The modules that quantization reads compute what the exported ones do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fx_importer.quantization.normalization.normalize import normalize

MASK = torch.zeros(4, 4).masked_fill(torch.eye(4).bool(), -1e9)
ROW = MASK.index_fill(0, torch.tensor(0), -1e9)
"""Its first row excludes every element."""


def squared(x: Tensor) -> Tensor:
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
    return y * y


@pytest.mark.parametrize(
    "model, made",
    [
        (squared, "aten.rms_norm.default"),
        (lambda x: x * torch.rsqrt(x.mean(-1, keepdim=True) + 9), "aten.rsqrt.default"),
        (lambda x: x * torch.rsqrt(x.pow(2).mean(None, keepdim=True) + 1), "aten.rsqrt.default"),
        (lambda x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 99), "aten.rsqrt.default"),
        (lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=MASK), "aten.where.ScalarOther"),
        (lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=ROW), "aten.add.Tensor"),
    ],
)
def test_same_numbers(model: Callable[[Tensor], Tensor], made: str) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return model(x)

    torch.manual_seed(0)
    x = torch.randn(1, 2, 4, 8)
    module = torch.export.export(Model(), (x,)).module()
    assert isinstance(module, torch.fx.GraphModule)
    normalize(module)
    assert made in [str(node.target) for node in module.graph.nodes]
    torch.testing.assert_close(module(x), model(x))
