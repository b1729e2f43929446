"""Layouts of convolutions in StableHLO and weights prepared at load, which XLA gets, on StableHLO's interpreter."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fx_importer import lower
from fx_importer.calls.call_signature import IN_STABLEHLO
from fx_importer.engines import StablehloBackend
from fx_importer.engines.function_extraction import extract_function
from fx_importer.mlir.constant_arguments import take_resources
from fx_importer.mlir.walk import operations
from fx_importer.rewrites.stablehlo.convolution_layouts import stablehlo_channels_last
from fx_importer.rewrites.xla.weight_preparation import split_preparation

needs_xla = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="the extra 'xla' is not installed")


class Blocks(nn.Module):
    """Convolutions of all kinds, and what their layout goes through."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 16, 3, padding=1, groups=8, bias=False)
        self.grouped = nn.Conv2d(16, 8, (3, 2), padding=(2, 1), dilation=2, groups=4)
        self.up = nn.ConvTranspose2d(8, 8, 3, 2, 1, output_padding=1, groups=2)
        self.gate = nn.Conv2d(8, 8, 1)
        self.layer_norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)
        self.group_norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        y = self.up(F.pad(self.grouped(self.depthwise(x)), (1, 0, 0, 2), value=0.5))[:, :, : x.shape[2], : x.shape[3]]
        x = x + y * self.gate(y.mean((2, 3), keepdim=True)).sigmoid()
        x = x + self.linear(self.layer_norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        x = torch.cat([x, x.flip(3).clamp(-1, 1)], 1) * torch.arange(x.shape[3], dtype=x.dtype)
        return F.avg_pool2d(x, 2, 2).flatten(2).transpose(1, 2), x.mean((2, 3)), self.group_norm(x[:, :8])


class Dimensions(nn.Module):
    """Convolutions along one axis and three."""

    def __init__(self):
        super().__init__()
        self.line = nn.Conv1d(4, 8, 3, 2, 1, padding_mode="circular")
        self.wide = nn.ConvTranspose1d(8, 4, 4, 2, 1)
        self.volume = nn.Conv3d(2, 4, (2, 3, 3), padding=1, bias=False)
        self.depthwise = nn.Conv3d(4, 4, 3, (1, 2, 2), groups=4)

    def forward(self, x):
        return F.gelu(self.wide(self.line(x))), self.depthwise(self.volume(x.reshape(2, 2, 2, 4, 4))).amax(1)


class Partly(nn.Module):
    """Computes from weights alone: what is smaller than they are, what is larger, and a result."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(300)), nn.Parameter(torch.randn(300))

    def forward(self, x):
        norm = (self.a * self.b).sum()
        return x * (self.a / norm), self.b.exp(), self.b[:, None] + self.a, self.a


def prepared(lowered):
    """Return the functions that prepare weights and compute, as the XLA backend makes them, and the weights."""
    module, function = extract_function(lowered.module, "main")
    inputs = len(function.entry_block.arguments)
    weights = take_resources(function, "stablehlo.constant", IN_STABLEHLO)
    stablehlo_channels_last(module.operation)
    preparation = split_preparation(function, inputs, IN_STABLEHLO)
    assert preparation is not None
    return preparation, module, weights


@pytest.mark.parametrize(
    "model, shape, dtype, transposed",
    [
        pytest.param(Blocks, (1, 3, 24, 24), torch.float32, 2, id="blocks"),  # the image, and the last normalization
        pytest.param(Blocks, (1, 3, 24, 24), torch.bfloat16, 2, id="blocks-bf16"),
        pytest.param(Dimensions, (2, 4, 16), torch.float32, 4, id="dimensions"),  # two images, a splat, a result
    ],
)
@torch.no_grad()
def test_results_are_those_of_eager(model, shape, dtype, transposed):
    torch.manual_seed(0)
    model, x = model().eval().to(dtype), torch.randn(shape).to(dtype)
    preparation, module, weights = prepared(lower(model, x, output_type="stablehlo"))
    found = StablehloBackend().load(module)(x, *StablehloBackend().load(preparation)(*weights))
    expected = model(x)
    rtol, atol = (1e-4, 1e-5) if dtype is torch.float32 else (0.05, 0.05)
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)
    assert len(operations(module.operation, ("stablehlo.transpose",))) <= transposed


@pytest.mark.slow
@needs_xla
@torch.no_grad()
def test_each_set_of_sizes_has_its_layout():
    torch.manual_seed(0)
    model, x = Blocks().eval(), torch.ones(2, 3, 24, 24)
    lowered = lower(model, x, output_type="stablehlo", dynamic_shapes=({0: torch.export.Dim("n")},))
    call = lowered.caller(backend="xla")
    for x in (torch.randn(1, 3, 24, 24), torch.randn(3, 3, 24, 24)):
        torch.testing.assert_close(call(x), model(x), rtol=1e-4, atol=1e-5)


def test_what_stays_in_the_function():
    model = Partly()
    preparation, module, weights = prepared(lower(model, torch.ones(2, 300), output_type="stablehlo", fold=False))
    kept = {op.name for op in operations(module.operation) if op.name.startswith("stablehlo.")}
    assert kept - {"stablehlo.constant"} == {f"stablehlo.{each}" for each in ("add", "broadcast_in_dim", "multiply")}
    found = StablehloBackend().load(module)(torch.ones(2, 300), *StablehloBackend().load(preparation)(*weights))
    torch.testing.assert_close(found, model(torch.ones(2, 300)))
