"""Reports that the tests open in a browser."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from fx_importer import compare_decompositions, lower
from fx_importer.api.report import contents_of_models
from fx_importer.diagnostics.explorer import Contents, Recorder, contents_of
from fx_importer.diagnostics.trace import Trace
from fx_importer.mlir.bindings import ir
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.results.report import contents_of_lowered


def lowered_page(model: Any, inputs: tuple[Any, ...], output_type: OutputType) -> Contents:
    return contents_of_models("model", {"main": (model, inputs, {})}, Options(output_type=output_type))


def minilm() -> Contents:
    """The encoder of the demo, with its trained weights, to TOSA."""
    from fx_importer.cli.demo.sentence_encoder import load_encoder

    encoder, inputs = load_encoder()
    return lowered_page(encoder, tuple(inputs), OutputType.TOSA)


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, out: int, stride: int):
        super().__init__()
        self.reduce = nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.spatial = nn.Sequential(
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.expand = nn.Sequential(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.shortcut = nn.Identity()
        if stride > 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.expand(self.spatial(self.reduce(x))) + self.shortcut(x))


class ResNet(nn.Module):
    """The structure of ResNet-50: half of its blocks, a sixteenth of its width."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        channels, layers = 4, []
        for depth, width, stride in ((2, 4, 1), (2, 8, 2), (2, 16, 2), (2, 32, 2)):
            blocks = []
            for number in range(depth):
                blocks.append(Bottleneck(channels, width, 4 * width, 1 if number else stride))
                channels = 4 * width
            layers.append(nn.Sequential(*blocks))
        self.layers = nn.ModuleList(layers)
        self.classifier = nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x.mean((2, 3)))


def resnet() -> Contents:
    return lowered_page(ResNet().eval(), (torch.ones(1, 3, 64, 64),), OutputType.LINALG_ON_TENSORS)


class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.mix(x)  # </script><img src="https://example.com/x.png"> <!-- &amp;
        return torch.ops.aten._standard_gamma(torch.relu(y) + 1)


@functools.cache
def failing() -> Contents:
    return lowered_page(Failing(), (torch.ones(3, 4),), OutputType.STABLEHLO)


class Small(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1)


@functools.cache
def verified() -> Contents:
    lowered = lower(Small(), torch.ones(2, 3), output_type="linalg-on-tensors")
    return contents_of_lowered(lowered, lowered.verify(backends=["jit"], atol=0, rtol=0))


class Activation(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(nn.functional.gelu(x))


def differing() -> Contents:
    """A program in which the decomposition of GELU is wrong, with the first operation that differs."""

    def wrong(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
        return x * torch.sigmoid(x)

    table = {torch.ops.aten.gelu.default: wrong}
    model, x = Activation(), torch.ones(2, 3)
    lowered = lower(model, x, output_type="linalg-on-tensors", decomposition_table=table)
    return contents_of_lowered(lowered, None, compare_decompositions(model, x, decomposition_table=table))


def gradients() -> Contents:
    """The gradients of a layer, whose nodes have no Python lines."""

    def loss(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda each: torch.tanh(x @ each).sum())(weight)

    inputs = (torch.ones(3, 2), torch.ones(4, 3))
    return lowered_page(make_fx(loss)(*inputs), inputs, OutputType.LINALG_ON_TENSORS)


def large(count: int = 10_000, modules: int = 20) -> Contents:
    """A chain of ``count`` operations in nested submodules, after three stages of which each changes some."""
    recorder, trace = Recorder(), Trace()
    with ir.Context(), ir.Location.unknown():
        for number, name in enumerate(("first", "second", "third")):
            lines = [
                f"    %{n + 1} = arith.{'mulf' if n % 100 < number else 'addf'} %{n}, %{n} : tensor<4xf32> "
                f'loc(fused["block.{n * modules // count}.mix"("model.py":{n % 40 + 2}:0)])'
                for n in range(count)
            ]
            text = [
                "module {",
                "  func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {",
                *lines,
                f"    return %{count} : tensor<4xf32>",
                "  }",
                "}",
            ]
            module = ir.Module.parse("\n".join(text))
            with trace.stage(name, module):
                pass
            recorder.add_module(number, name, module.operation)
    return contents_of("large", "raw", trace, recorder)
