"""Training steps of small models: forward, backward and the optimizer, in eager PyTorch and through `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.running.front_ends import TORCH_COMPILE
from fx_importer.benchmarking import Candidate, Example
from fx_importer.benchmarking.engines import EAGER, INDUCTOR


class _Encoder(nn.Module):
    """A layer of a transformer, and logits of the mean of its results."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        self.head = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.head(self.layer(x).mean(1))


def _mlp() -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.GELU()), *(nn.LayerNorm(512), nn.Linear(512, 10))
    )


def _cnn() -> nn.Module:
    def block(inner: int, outer: int) -> list[nn.Module]:
        # Without biases, which a normalization subtracts: their gradients would be zero but for rounding.
        return [nn.Conv2d(inner, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU()]

    pooled = [*block(3, 32), nn.MaxPool2d(2), *block(32, 64), nn.MaxPool2d(2), *block(64, 128)]
    return nn.Sequential(*pooled, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


TRAINED: dict[str, tuple[Callable[[], nn.Module], int, tuple[int, ...], str]] = {
    "mlp, SGD": (_mlp, 64, (256,), "SGD"),
    "cnn, SGD": (_cnn, 16, (3, 32, 32), "SGD"),
    "encoder layer, AdamW": (_Encoder, 8, (64, 256), "AdamW"),
}
"""What makes each model, the batch size, the sizes of an input, and the optimizer."""


class _Trained(nn.Module):
    """A model with its optimizer."""

    def __init__(self, model: nn.Module, optimizer: str):
        super().__init__()
        self.model = model
        self.optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-4)


def load_training(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]:
    """Return the model ``name`` with its optimizer, inputs and classes."""
    build, batch, sizes, optimizer = TRAINED[name]
    return _Trained(build(), optimizer), (torch.randn(batch, *sizes), torch.randint(0, 10, (batch,))), {}


def _step(engine: Candidate, example: Example) -> Callable[..., Any]:
    """Return a training step with the model on ``engine``, which returns the loss and the gradients."""
    trained = example.model
    assert isinstance(trained, _Trained)
    forward = engine.prepare(Example(trained.model.train(), example.args, example.kwargs))

    def step(x: torch.Tensor, classes: torch.Tensor) -> list[torch.Tensor]:
        with torch.enable_grad():
            trained.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(forward(x), classes)
            loss.backward()
        trained.optimizer.step()
        return [loss.detach(), *(each.grad for each in trained.model.parameters() if each.grad is not None)]

    return step


STEPS = [Candidate(each.name, partial(_step, each), each.check) for each in (EAGER, INDUCTOR, TORCH_COMPILE)]
"""What trains, by the names of what compiles the model."""
