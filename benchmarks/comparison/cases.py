"""What is compared: programs, and the output type that each is carried to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from benchmarks.zoo import ZOO

MEBI = 2**20


@dataclass(frozen=True)
class Case:
    """One program and where it is carried to."""

    name: str
    build: Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]
    """Returns a model in eval mode with positional and keyword example inputs; the same at every call."""
    output_type: str
    weights_only: bool = False
    """Whether the program is next to nothing but weights: its import stage gives the cost per GB."""

    def export(self) -> ExportedProgram:
        """Build and export the model."""
        model, args, kwargs = self.build()
        return torch.export.export(model, args, kwargs, strict=False)


def _weights(mebibytes: int, dtype: torch.dtype) -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]:
    """One linear layer whose weight takes ``mebibytes``."""
    torch.manual_seed(0)
    inputs = 4096
    outputs = mebibytes * MEBI // (inputs * dtype.itemsize)
    return nn.Linear(inputs, outputs, bias=False, dtype=dtype).eval(), (torch.ones(1, inputs, dtype=dtype),), {}


class Elementwise(nn.Module):
    """A chain of ``nodes`` elementwise operations on one small tensor: what a node costs, without weights."""

    def __init__(self, nodes: int):
        super().__init__()
        self.rounds = nodes // 4

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return ``x`` after the chain; ``y`` has the same shape."""
        for _ in range(self.rounds):
            x = torch.tanh(torch.sin(x) * y + x)
        return x


def _elementwise(nodes: int) -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]:
    return Elementwise(nodes).eval(), (torch.ones(16, 16), torch.ones(16, 16)), {}


def _zoo(name: str) -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Tensor]]:
    """A model of the zoo, made such that torch_mlir.fx can carry it too.

    With a batch of two it cannot decompose GPT-2, and buffers that are not in the state dict it cannot import.
    """
    model, args, kwargs = ZOO[name].build()
    for module in model.modules():
        module._non_persistent_buffers_set.clear()
    return model, tuple(x[:1] for x in args), {key: x[:1] for key, x in kwargs.items()}


_CASES = (
    *(
        Case(f"weights_{size}mb_{label}", partial(_weights, size, dtype), "raw", weights_only=True)
        for label, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
        for size in (64, 256, 1024)
    ),
    *(
        Case(name, partial(_zoo, name), "linalg-on-tensors")
        for name in ("bert_base", "resnet50", "gpt2", "vit_b_16", "llama_small")
    ),
    Case("elementwise_4000", partial(_elementwise, 4000), "linalg-on-tensors"),
)

CASES: dict[str, Case] = {case.name: case for case in _CASES}
"""Every case, by name."""
