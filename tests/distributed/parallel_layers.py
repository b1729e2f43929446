"""Models of transformers, divided among ranks along tp: projections by torch's styles; GPT-2's fused ones and experts
by layers of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

from fx_importer.distributed import group_rank

FUSED = {"c_attn": 3, "c_fc": 1}
"""How many weights GPT-2's Conv1D holds side by side, by its name."""

COLUMNS, ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), ("o_proj", "down_proj")


def repeated(x: torch.Tensor, mesh: Any) -> torch.Tensor:
    """Return ``x``, which all ranks have, with a gradient that is the sum over ranks."""
    return DTensor.from_local(x, mesh, [Replicate()]).to_local(grad_placements=[Partial()])


def added(x: torch.Tensor, mesh: Any) -> torch.Tensor:
    """Return the sum over ranks of ``x``."""
    return DTensor.from_local(x, mesh, [Partial()]).redistribute(placements=[Replicate()]).to_local()


class OwnExperts(torch.nn.Module):
    """A mixture's experts, of which each rank has some: all ranks see all tokens, and their results are added."""

    def __init__(self, whole: Any, mesh: Any):
        super().__init__()
        self.mesh, self.act_fn = mesh, whole.act_fn
        for name, held in whole.named_parameters():
            setattr(self, name, torch.nn.Parameter(distribute_tensor(held.detach(), mesh, [Shard(0)])))

    def forward(self, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        hidden, weights = (repeated(each, self.mesh) for each in (hidden, weights))
        up, down = (each.to_local() for each in (self.gate_up_proj, self.down_proj))  # type: ignore[operator]
        own = group_rank((self.mesh, 0)) * up.shape[0] + torch.arange(up.shape[0])
        share = (weights.unsqueeze(-1) * (chosen.unsqueeze(-1) == own)).sum(1)  # of each token in each own expert
        gate, value = (hidden @ up.mT).chunk(2, -1)
        results = (self.act_fn(gate) * value) @ down.mT
        return added((results * share.mT.unsqueeze(-1)).sum(0), self.mesh)


class Columns(torch.nn.Module):
    """GPT-2's Conv1D, of which each rank has its columns of each of ``parts``: of queries, keys and values."""

    def __init__(self, whole: Any, mesh: Any, parts: int = 1):
        super().__init__()
        self.mesh = mesh
        for name, held in whole.named_parameters():
            divided = distribute_tensor(held.detach().unflatten(-1, (parts, -1)), mesh, [Shard(held.dim())])
            setattr(self, name, torch.nn.Parameter(divided))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = (each.to_local().flatten(-2) for each in (self.weight, self.bias))  # type: ignore[operator]
        return repeated(x, self.mesh) @ weight + bias


class Rows(torch.nn.Module):
    """GPT-2's Conv1D, of which each rank has its rows."""

    def __init__(self, whole: Any, mesh: Any):
        super().__init__()
        self.mesh, self.bias = mesh, whole.bias
        self.weight = torch.nn.Parameter(distribute_tensor(whole.weight.detach(), mesh, [Shard(0)]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own: Any = self.weight
        return added(x @ own.to_local(), self.mesh) + self.bias


def parallelized(whole: torch.nn.Module, mesh: Any, embedding: bool = False) -> Any:
    """Return this rank's part of a Llama or a Mixtral; of its ``embedding`` only where gradients are traced."""
    model, along = copy.deepcopy(whole), mesh["tp"]
    plan: dict[str, Any] = {}
    for name, module in list(model.named_modules()):
        last = name.split(".")[-1]
        if last == "experts":
            model.set_submodule(name, OwnExperts(module, along))
        elif last in COLUMNS:
            plan[name] = ColwiseParallel()
        elif last in ROWS:
            plan[name] = RowwiseParallel()
        elif last == "embed_tokens" and embedding:
            plan[name] = RowwiseParallel(input_layouts=Replicate())
        elif last == "lm_head":
            plan[name] = ColwiseParallel(output_layouts=Replicate())
    return parallelize_module(model, along, plan)


def parallel_gpt2(whole: torch.nn.Module, mesh: Any) -> Any:
    model, along = copy.deepcopy(whole), mesh["tp"]
    layers: list[Any] = [each for each in model.modules() if isinstance(each, GPT2Block)]
    for layer in layers:
        layer.attn.split_size //= along.size()
        layer.attn.c_attn, layer.attn.c_proj = Columns(layer.attn.c_attn, along, 3), Rows(layer.attn.c_proj, along)
        layer.mlp.c_fc, layer.mlp.c_proj = Columns(layer.mlp.c_fc, along), Rows(layer.mlp.c_proj, along)
    return model


def unfused(weights: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return whole weights as `Columns` has them."""
    parts = {name: FUSED.get(name.split(".")[-2]) for name in weights}
    return {name: each.unflatten(-1, (by, -1)) if (by := parts[name]) else each for name, each in weights.items()}
