"""One layer of self-attention, for ``fx-importer view examples.attention:build``, and the pictures of the manual."""

import torch
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Attention with four heads, a residual connection, and layer normalization."""

    def __init__(self, width: int = 64, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, tokens, width]``, the shape of ``x``."""
        batch, tokens, width = x.shape
        query, key, value = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2)
            for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
        weights = torch.softmax(scores, dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, tokens, width)
        return self.norm(x + self.out(mixed))


def build() -> tuple[nn.Module, tuple[Tensor]]:
    """Return the model in eval mode, and example inputs."""
    torch.manual_seed(0)
    return SelfAttention().eval(), (torch.randn(1, 16, 64),)
