"""Joint graphs of loss and gradients against eager, by each of torch's tracers, to every output type. TOSA and
StableHLO are only lowered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch.export.experimental import _export_forward_backward
from torch.func import functional_call, grad_and_value, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from fx_importer import lower
from tests.e2e.harness import STABLEHLO, TOSA


class Gated(nn.Module):
    """A decoder layer: attention with fewer key heads than query heads, and a gated feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(7, 8), nn.RMSNorm(8)
        self.query, self.pair, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.gate, self.up, self.head = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 7)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.norm(embedded := self.embedding(tokens))
        query = self.query(x).unflatten(-1, (2, 4)).transpose(1, 2)
        key, value = self.pair(x).unsqueeze(1).chunk(2, -1)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = embedded + self.out(seen.transpose(1, 2).flatten(2))
        return F.cross_entropy(self.head(F.silu(self.gate(x)) * self.up(x)).flatten(0, 1), labels.flatten())


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.largest, self.sum = nn.EmbeddingBag(7, 4, mode="max"), nn.EmbeddingBag(7, 4, mode="sum")

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = F.log_softmax(self.largest(tokens) * self.sum(tokens), -1)
        return F.nll_loss(x, labels[:, 0] % 4) + F.kl_div(x, F.softmax(x.flip(-1), -1), reduction="batchmean")


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.group, self.instance = nn.Embedding(7, 16), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4)
        self.down = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(tokens).unflatten(-1, (4, 4))
        x = self.instance(F.silu(self.group(self.down(x))))
        x = F.interpolate(x, scale_factor=2, mode="bilinear").mean((2, 3)) + F.leaky_relu(x).amax((2, 3))
        return F.huber_loss(x[:, :3], labels.float(), delta=0.7)


Loss = Callable[..., Tensor]
Weights = dict[str, Tensor]


def by_grad(loss: Loss, weights: Weights, inputs: tuple[Tensor, ...]) -> tuple[Any, tuple[Any, ...]]:
    def step(*values: Tensor) -> Any:
        named = dict(zip(weights, values, strict=False))
        found, value = grad_and_value(loss)(named, *values[len(weights) :])
        return value, *found.values()

    given = (*weights.values(), *inputs)
    return make_fx(step, tracing_mode="fake")(*given), given


def by_vmap(loss: Loss, weights: Weights, inputs: tuple[Tensor, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Per-sample gradients, and their mean: all of these losses are means over the batch."""

    def step(*values: Tensor) -> Any:
        named = dict(zip(weights, values, strict=False))
        one = vmap(grad_and_value(lambda *a: loss(a[0], *(each.unsqueeze(0) for each in a[1:]))), (None, 0, 0))
        found, value = one(named, *values[len(weights) :])
        return value.mean(), *(each.mean(0) for each in found.values())

    given = (*weights.values(), *inputs)
    return make_fx(step, tracing_mode="fake")(*given), given


def by_joint(loss: Loss, weights: Weights, inputs: tuple[Tensor, ...]) -> tuple[Any, tuple[Any, ...]]:
    def forward(*values: Tensor) -> tuple[Tensor]:
        return (loss(dict(zip(weights, values, strict=False)), *values[len(weights) :]),)

    given = (*(each.clone().requires_grad_() for each in weights.values()), *inputs)
    graph = aot_export_joint_simple(forward, given, trace_joint=True)
    return graph, ((*weights.values(), *inputs), (torch.ones(()),))


WAYS = {"grad": by_grad, "vmap": by_vmap, "joint": by_joint}


@pytest.mark.slow_rows(unless="Bags-vmap")
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # from vmap, for embedding bags
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("build", [Gated, Bags, Normed], ids=lambda each: each.__name__)
def test_joint_graph(build: Callable[[], nn.Module], way: str) -> None:
    torch.manual_seed(0)
    model, inputs = build(), (torch.randint(0, 7, (2, 3)), torch.randint(0, 7, (2, 3)))
    weights = {name: each.detach() for name, each in model.named_parameters()}
    graph, given = WAYS[way](lambda named, *inputs: functional_call(model, named, inputs), weights, inputs)
    (value := model(*inputs)).backward()
    expected = [value.detach(), *(each.grad for each in model.parameters())]
    lowered = lower(graph, *given, output_type="linalg")
    results = [each for each in tree_leaves(lowered.run(*given)) if each is not None]
    torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-5)
    (program,) = lowered.exported.values()
    for output_type in (TOSA, STABLEHLO):
        lower(program, output_type=output_type)


@pytest.mark.slow_rows("Normed", "Gated")
# torch 2.13 copies pytree specs in a way that torch 2.13 warns of.
@pytest.mark.filterwarnings("ignore:.*isinstance\\(treespec, LeafSpec\\):FutureWarning")
@pytest.mark.parametrize("build", [Gated, Bags, Normed], ids=lambda each: each.__name__)
def test_exported_joint_graph(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, inputs = build(), (torch.randint(0, 7, (2, 3)), torch.randint(0, 7, (2, 3)))
    program = _export_forward_backward(torch.export.export(model, inputs))
    caller = lower(program, mutation="functional", output_type="linalg").caller()
    torch.testing.assert_close(caller(*inputs), (value := model(*inputs)).detach())
    value.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(caller.gradients[name], parameter.grad, rtol=1e-4, atol=1e-5)
    for output_type in (TOSA, STABLEHLO):
        lower(program, mutation="functional", output_type=output_type)
