"""Loss and gradients of each rank, of modules that are parallelized with DTensor, beside the whole module in eager."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from fx_importer import lower
from fx_importer.distributed import export_on_mesh
from fx_importer.errors import UsageError
from tests.distributed.parallel_layers import parallel_gpt2, parallelized, unfused
from tests.distributed.test_models import SIZES, LanguageLoss, Perceptron, gpt2, tokens_of


def llama() -> Any:
    return LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False))


def mixtral() -> Any:
    return MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=8, use_cache=False))


class Normed(torch.nn.Sequential):
    """A loss of a batch normalization that is frozen, and keeps statistics."""

    def __init__(self):
        super().__init__(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6).requires_grad_(False))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input).relu().square().mean()


@pytest.mark.slow_rows("mixtral|gpt2|llama")
@pytest.mark.parametrize(
    "make, divided, mesh",
    [
        pytest.param(Perceptron, partial(parallelized, embedding=True), "dp=2,tp=4", id="perceptron"),
        pytest.param(llama, partial(parallelized, embedding=True), "dp=2,tp=4", id="llama"),
        pytest.param(mixtral, parallelized, "dp=2,tp=4", id="mixtral"),
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


@pytest.mark.slow
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
