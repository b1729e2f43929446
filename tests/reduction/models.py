"""Long models with one faulty node, for processes that tests start and for `fx-importer reduce`."""

from collections.abc import Callable

import torch


class Long(torch.nn.Module):
    """Pairs of nodes, with another node in the middle, and linear layers in between."""

    def __init__(self, bad: Callable[[torch.Tensor], torch.Tensor], pairs: int):
        super().__init__()
        self.bad, self.pairs = bad, pairs
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in range(self.pairs):
            x = x * 1.01
            x = x - 0.01
            if i == self.pairs // 2:
                x = self.bad(x)
            if i % 50 == 0:
                x = self.linear(x)
        return x


def long(bad: Callable[[torch.Tensor], torch.Tensor], pairs: int = 148) -> tuple[Long, tuple[torch.Tensor]]:
    """Return a model of about 300 nodes, and its inputs."""
    torch.manual_seed(0)
    return Long(bad, pairs), (torch.randn(4, 8),)


def with_gamma() -> tuple[Long, tuple[torch.Tensor]]:
    """Return a model with a gamma distribution, which is unsupported in StableHLO."""
    return long(lambda x: torch.ops.aten._standard_gamma(x * x), 50)


def with_gelu(pairs: int = 148) -> tuple[Long, tuple[torch.Tensor]]:
    return long(torch.nn.functional.gelu, pairs)
