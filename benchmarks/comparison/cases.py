"""The cases: programs, and the output type that each is lowered to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from benchmarks.comparison.graphs import blocks, chain
from testing.zoo import ZOO

MEBI = 2**20


@dataclass(frozen=True)
class Case:
    """One program and an output type."""

    program: str
    """The name of one of `PROGRAMS`."""
    output_type: str
    nodes: int = 0
    """Approximate number of nodes, for graphs whose cost per node is measured."""
    peer: bool = True
    """Whether torch_mlir.fx is measured too."""

    @property
    def name(self) -> str:
        return f"{self.program} → {_SHORT.get(self.output_type, self.output_type)}"

    @property
    def weights_only(self) -> bool:
        """Whether the program consists almost only of weights: its import stage gives the cost per GB."""
        return self.program.startswith("weights_")

    @property
    def family(self) -> str:
        """The prefix of the program's name that graphs of several sizes share."""
        return self.program.rpartition("_")[0]


def _weights(mebibytes: int, dtype: torch.dtype) -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]:
    """One linear layer whose weight takes ``mebibytes``."""
    torch.manual_seed(0)
    inputs = 4096
    outputs = mebibytes * MEBI // (inputs * dtype.itemsize)
    return nn.Linear(inputs, outputs, bias=False, dtype=dtype).eval(), (torch.ones(1, inputs, dtype=dtype),), {}


class Many(nn.Module):
    """Adds ``count`` small parameters."""

    def __init__(self, count: int):
        super().__init__()
        self.weights = nn.ParameterList(torch.full((64, 64), 1.0 + i) for i in range(count))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` and all of them, added."""
        for weight in self.weights:
            x = x + weight
        return x


def _many(count: int) -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]:
    return Many(count).eval(), (torch.ones(64, 64),), {}


def _zoo(name: str) -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Tensor]]:
    """A model of the zoo, changed such that torch_mlir.fx can lower it too.

    torch_mlir.fx cannot decompose GPT-2 with a batch of two, nor import buffers that are not in the state dict.
    """
    model, args, kwargs = ZOO[name].build()
    for module in model.modules():
        module._non_persistent_buffers_set.clear()
    return model, tuple(x[:1] for x in args), {key: x[:1] for key, x in kwargs.items()}


Build = Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]
"""Returns a model in eval mode with positional and keyword example inputs; the same at every call."""

_DTYPES = (("fp32", torch.float32), ("bf16", torch.bfloat16))
_SIZES = (1, 16, 64, 256, 1024)
MODELS = ("bert_base", "gpt2", "resnet50", "vit_b_16", "llama_small")
NODES = (1000, 4000, 16000, 64000)
OUTPUTS = ("linalg-on-tensors", "tosa", "stablehlo")
_SHORT = {"linalg-on-tensors": "linalg"}

EXPORTED: dict[str, Build] = {
    **{name: partial(_zoo, name) for name in MODELS},
    **{f"weights_{size}mb_{label}": partial(_weights, size, dtype) for label, dtype in _DTYPES for size in _SIZES},
    "many_weights_1000": partial(_many, 1000),
}
"""Programs that are exported and saved once, by name."""

MADE: dict[str, Callable[[], ExportedProgram]] = {
    **{f"elementwise_{nodes}": partial(chain, nodes) for nodes in NODES},
    **{f"blocks_{nodes}": partial(blocks, nodes) for nodes in NODES},
}
"""Programs that each run builds: saving and loading large graphs would take longer than the measured work."""


def export(program: str) -> ExportedProgram:
    """Build and export the model of one of `EXPORTED`."""
    model, args, kwargs = EXPORTED[program]()
    return torch.export.export(model, args, kwargs, strict=False)


def _of_size(family: str, nodes: int, output_type: str) -> Case:
    # Of torch_mlir.fx, larger graphs take minutes for each output type, most of which pass before they differ.
    most = 16000 if (family, output_type) == ("elementwise", OUTPUTS[0]) else 4000
    return Case(f"{family}_{nodes}", output_type, nodes, peer=nodes <= most)


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *(Case(f"weights_{size}mb_{label}", "raw") for label, _ in _DTYPES for size in _SIZES),
        Case("many_weights_1000", "raw"),
        Case("many_weights_1000", "linalg-on-tensors"),
        *(Case(name, output_type) for name in MODELS for output_type in OUTPUTS),
        *(_of_size("elementwise", nodes, output_type) for output_type in OUTPUTS for nodes in NODES),
        *(_of_size("blocks", nodes, output_type) for output_type in OUTPUTS for nodes in NODES),
    )
}
"""Every case, by name."""
