"""Models for tests of the command line's error messages."""

import torch
from torch import Tensor, nn


@torch.library.custom_op("models::frobnicate", mutates_args=())
def frobnicate(x: Tensor) -> Tensor:
    return x.clone()


@frobnicate.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Frobnicating(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return frobnicate(x.tanh())


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


def frobnicating() -> tuple[nn.Module, tuple[Tensor]]:
    return Frobnicating(), (torch.zeros(3),)


def branching() -> tuple[nn.Module, tuple[Tensor]]:
    return Branching(), (torch.zeros(3),)


def counting() -> tuple[nn.Module, tuple[Tensor]]:
    return Counting(), (torch.zeros(3),)
