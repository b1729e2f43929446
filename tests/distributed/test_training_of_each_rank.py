"""Loss and gradients of each rank, of modules that are parallelized with DTensor, beside the whole module in eager."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

from fx_importer import lower
from fx_importer.distributed import export_on_mesh
from fx_importer.errors import UsageError
from tests.distributed.test_models import SIZES, LanguageLoss, gpt2, tokens_of

COLUMNS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
ROWS = ("self_attn.o_proj", "mlp.down_proj")
FUSED = {"c_attn": 3, "c_fc": 1}
"""How many weights GPT-2's Conv1D holds side by side, by its name."""


def parallelized(whole: LanguageLoss, mesh: Any) -> torch.nn.Module:
    plan: dict[str, Any] = {f"model.model.layers.*.{name}": ColwiseParallel() for name in COLUMNS}
    plan |= {f"model.model.layers.*.{name}": RowwiseParallel() for name in ROWS}
    return parallelize_module(copy.deepcopy(whole), mesh["tp"], plan)


class Columns(torch.nn.Module):
    """GPT-2's Conv1D, of which each rank has its columns of each of ``parts``: of queries, keys and values."""

    def __init__(self, whole: Any, mesh: Any, parts: int = 1):
        super().__init__()
        self.mesh = mesh
        for name, held in whole.named_parameters():
            divided = distribute_tensor(held.detach().unflatten(-1, (parts, -1)), mesh, [Shard(held.dim())])
            setattr(self, name, torch.nn.Parameter(divided))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = DTensor.from_local(x, self.mesh, [Replicate()]).to_local(grad_placements=[Partial()])
        weight, bias = (each.to_local().flatten(-2) for each in (self.weight, self.bias))  # type: ignore[operator]
        return x @ weight + bias


class Rows(torch.nn.Module):
    """GPT-2's Conv1D, of which each rank has its rows."""

    def __init__(self, whole: Any, mesh: Any):
        super().__init__()
        self.mesh, self.bias = mesh, whole.bias
        self.weight = torch.nn.Parameter(distribute_tensor(whole.weight.detach(), mesh, [Shard(0)]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own: Any = self.weight
        summand = DTensor.from_local(x @ own.to_local(), self.mesh, [Partial()])
        return summand.redistribute(placements=[Replicate()]).to_local() + self.bias


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


def llama() -> Any:
    return LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False))


class Normed(torch.nn.Sequential):
    """A loss of a batch normalization that is frozen, and keeps statistics."""

    def __init__(self):
        super().__init__(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6).requires_grad_(False))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input).relu().square().mean()


@pytest.mark.slow_rows("gpt2")
@pytest.mark.parametrize(
    "make, divided, mesh",
    [
        pytest.param(llama, parallelized, "dp=2,tp=4", id="llama"),
        pytest.param(gpt2, parallel_gpt2, "dp=4,tp=2", id="gpt2"),
    ],
)
def test_loss_and_gradients(make: Any, divided: Any, mesh: str):
    torch.manual_seed(0)
    whole, tokens = LanguageLoss(make()), tokens_of(4, 6)
    replicas = int(mesh[3])
    batches = tokens.chunk(replicas)
    program = export_on_mesh(lambda mesh: (divided(whole, mesh), (batches[0],)), mesh, gradients=["dp"])
    lowered = lower(program.program, output_type="stablehlo", mesh=mesh, weights="args")
    loss = whole(tokens)
    loss.backward()

    expected = program.states(unfused({name: each.grad for name, each in whole.named_parameters()}))
    for backend in ("xla", "jit"):
        caller = lowered.caller_on_mesh(program.states(unfused(whole.state_dict())), backend=backend)
        losses = caller([(part,) for part in batches for _ in range(8 // replicas)])
        for rank, value, own in zip(caller.ranks, losses, expected, strict=True):
            torch.testing.assert_close(value, loss.detach())
            assert rank.gradients.keys() == own.keys()
            for name, part in own.items():
                torch.testing.assert_close(rank.gradients[name], part, rtol=1e-4, atol=1e-6, msg=name)


def test_buffers_are_updated_and_frozen_weights_have_no_gradient():
    torch.manual_seed(0)
    whole, x = Normed(), torch.randn(8, 4)
    expected = copy.deepcopy(whole)
    program = export_on_mesh(lambda mesh: (copy.deepcopy(whole), (x,)), "dp=2", gradients=["dp"])
    lowered = lower(program.program, output_type="stablehlo", mutation="functional", weights="args", mesh="dp=2")
    caller = lowered.caller_on_mesh(program.states(whole.state_dict()), backend="jit")
    loss = expected(x)
    loss.backward()
    for found in caller([(x,)] * 2):
        torch.testing.assert_close(found, loss.detach())
    assert caller.ranks[0].gradients.keys() == {"0.weight", "0.bias"}
    torch.testing.assert_close(caller.ranks[1].gradients["0.weight"], expected.get_parameter("0.weight").grad)
    torch.testing.assert_close(caller.ranks[1].state["1.running_mean"], expected.get_buffer("1.running_mean"))


@pytest.mark.parametrize(
    "model, gradients, sentence",
    [
        (torch.nn.Linear(4, 4), ["dp"], r"a tensor of one element, not \[4\]"),
        (torch.nn.Linear(4, 1).requires_grad_(False), [], "depends on parameters that need gradients"),
        (torch.nn.Linear(4, 1), ["batch"], "gradients= names batch, and the mesh has dp, tp"),
    ],
)
def test_refused(model: torch.nn.Module, gradients: list[str], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        export_on_mesh(lambda mesh: (copy.deepcopy(model), (torch.ones(4),)), "dp=1,tp=2", gradients=gradients)
