"""A small model for the command line: ``fx-importer import examples.mlp:build -o mlp.mlir``."""

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """Scores 3 classes from 4 features."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 8)
        self.scores = nn.Linear(8, 3)

    def forward(self, features: Tensor) -> Tensor:
        """``[rows, 4]`` → ``[rows, 3]``, each row a distribution."""
        return self.scores(self.hidden(features).relu()).softmax(dim=-1)


def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return the model and example inputs."""
    torch.manual_seed(0)
    return Classifier().eval(), (torch.zeros(2, 4),)
