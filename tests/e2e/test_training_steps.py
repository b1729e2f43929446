"""Training steps as functional programs: loss, gradients, new parameters and buffers; five steps against eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from fx_importer import lower
from fx_importer.engines import JitBackend
from tests.e2e.harness import LINALG, STABLEHLO, TOSA


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.head = nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.head(F.silu(self.second(x)).flatten(1))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Linear(3, 8), nn.Linear(8, 3)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(x)).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


Step = Callable[..., tuple[Tensor, ...]]


def sgd(model: nn.Module) -> Step:
    """Return a gradient descent step: from parameters, buffers, inputs and labels, to the loss, new parameters and
    buffers.
    """
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())

    def step(*values: Tensor) -> tuple[Tensor, ...]:
        *state, x, labels = values
        weights = {name: each.detach().requires_grad_() for name, each in zip(parameters, state, strict=False)}
        kept = {name: each.clone() for name, each in zip(buffers, state[len(weights) :], strict=True)}
        loss = F.cross_entropy(torch.func.functional_call(model, {**weights, **kept}, (x,)), labels)
        found = torch.autograd.grad(loss, list(weights.values()))
        new = [each.detach() - 0.1 * gradient for each, gradient in zip(weights.values(), found, strict=True)]
        return loss.detach(), *new, *kept.values()

    return step


def adam(model: nn.Module) -> Step:
    """Return a step of Adam: between parameters and inputs, it takes two moments of each, and the step count."""
    names = [name for name, _ in model.named_parameters()]

    def step(*values: Tensor) -> tuple[Tensor, ...]:
        *state, count, x, labels = values
        size = len(names)
        weights = {name: each.detach().requires_grad_() for name, each in zip(names, state[:size], strict=True)}
        loss = F.cross_entropy(torch.func.functional_call(model, weights, (x,)), labels)
        found = torch.autograd.grad(loss, list(weights.values()))
        count = count + 1
        new: tuple[list[Tensor], ...] = ([], [], [])
        for each, gradient, first, second in zip(
            weights.values(), found, state[size : 2 * size], state[2 * size :], strict=True
        ):
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient.square()
            scaled = (first / (1 - 0.9**count)) / ((second / (1 - 0.999**count)).sqrt() + 1e-8)
            for kind, value in zip(new, (each.detach() - 0.01 * scaled, first, second), strict=True):
                kind.append(value)
        return loss.detach(), *new[0], *new[1], *new[2], count

    return step


def of(model: nn.Module) -> list[Tensor]:
    return [each.detach().clone() for each in (*model.parameters(), *model.buffers())]


def with_moments(model: nn.Module) -> list[Tensor]:
    weights = of(model)
    return [*weights, *map(torch.zeros_like, weights), *map(torch.zeros_like, weights), torch.zeros(())]


Case = tuple[Callable[[], nn.Module], Callable[[nn.Module], Step], Callable[[nn.Module], list[Tensor]], Sequence[int]]

CASES: dict[str, Case] = {
    "images": (Images, sgd, of, (2, 2, 10, 10)),
    "block": (Block, sgd, of, (4, 5, 3)),
    "recurrent": (Recurrent, sgd, of, (4, 3, 3)),
    "adam": (lambda: nn.Linear(3, 3), adam, with_moments, (4, 3)),
}


@pytest.mark.slow_rows(
    "images",
    "block-(tosa|stablehlo)",
    "recurrent-(linalg|stablehlo)",
    "^recurrent-tosa$",
    "^adam-stablehlo$",
    "^adam-tosa$",
    "^block-linalg",
)
@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # from torch, about flags of mkldnn
@pytest.mark.parametrize("output_type", [LINALG, TOSA, STABLEHLO], ids=lambda each: each.value)
@pytest.mark.parametrize("case", CASES)
def test_five_steps(case: str, output_type: Any) -> None:
    torch.manual_seed(0)
    build, optimizer, initial, shape = CASES[case]
    model = build()
    step, state = optimizer(model), initial(model)
    x, labels = torch.randn(*shape), torch.randint(0, 3, (shape[0],))
    with torch.backends.mkldnn.flags(enabled=False):  # its LSTM is one operator, and saves tensors for its gradient
        graph = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*state, x, labels)
    run = lower(graph, *state, x, labels, output_type=output_type).caller(backend=JitBackend(optimization=0))
    ours = state
    losses: list[float] = []
    for _ in range(5):
        loss, *state = step(*state, x, labels)
        mine, *ours = run(*ours, x, labels)
        torch.testing.assert_close((mine, *ours), (loss, *state), rtol=1e-4, atol=1e-5)
        losses.append(float(loss))
    assert losses[-1] < losses[0]
