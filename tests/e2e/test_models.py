"""Complete small models of well-known kinds."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from .harness import Case, check, integers, normal, table


class Residual(nn.Module):
    """Two convolutions beside a shortcut, with squeeze and excitation."""

    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inner, outer, 3, 2, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer))
        self.shortcut = nn.Conv2d(inner, outer, 1, 2)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(outer, 2, 1), nn.SiLU(), nn.Conv2d(2, outer, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.first(x))
        return F.relu(y * self.gate(y).sigmoid() + self.shortcut(x))


class UNet(nn.Module):
    """One level down and up, with a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.bottom = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 2, 1)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = F.silu(self.norm(self.down(x)))
        return self.out(torch.cat([skip, self.up(F.relu(self.bottom(F.max_pool2d(skip, 2))))], 1))


class Language(nn.Module):
    """A decoder with one block and tied embeddings; returns logits and the argmax token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(11, 8), nn.RMSNorm(8)
        self.qkv, self.proj = nn.Linear(8, 24, bias=False), nn.Linear(8, 8, bias=False)
        self.gate, self.up, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, tokens: torch.Tensor):
        x = self.embedding(tokens)
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        logits = F.linear(self.norm(x), self.embedding.weight)
        return logits, logits[:, -1].argmax(-1)


class Patches(nn.Module):
    """Start and end of a vision transformer: patches, a class token, one layer, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 5)
        self.token, self.positions = nn.Parameter(normal(1, 1, 8)), nn.Parameter(normal(1, 5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True, norm_first=True)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = self.embed(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(image.shape[0], -1, -1), patches], 1) + self.positions
        return self.head(self.layer(x)[:, 0])


class Speech(nn.Module):
    """Convolutions over time, a recurrent layer, log probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.rnn, self.out = nn.Conv1d(4, 6, 3, 2, 1), nn.GRU(6, 5, bidirectional=True), nn.Linear(10, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.rnn(F.gelu(self.conv(x)).permute(2, 0, 1))[0]).log_softmax(-1)


class Autoencoder(nn.Module):
    """A variational autoencoder; the noise is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 8), nn.Sequential(nn.Linear(4, 6), nn.Sigmoid())

    def forward(self, x: torch.Tensor, noise: torch.Tensor):
        mean, variance = self.encode(x).chunk(2, -1)
        return self.decode(mean + noise * (variance / 2).exp()), mean, variance


class Mixer(nn.Module):
    """Mixes tokens, then channels."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.channels = nn.Linear(6, 6), nn.Linear(4, 4)
        self.first, self.second = nn.LayerNorm(4), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + F.gelu(self.tokens(self.first(x).transpose(1, 2))).transpose(1, 2)
        return x + F.gelu(self.channels(self.second(x)))


@pytest.mark.slow_rows(
    "^speech-tosa$",
    "^residual-stablehlo$",
    "^unet-tosa$",
    "^speech-stablehlo$",
    "^language-tosa$",
    "^patches-tosa$",
    "^(patches|mixer|speech)-linalg",
    "^unet-stablehlo$",
)
@table(
    Case(
        "residual",
        lambda: (nn.Sequential(Residual(3, 4), Residual(4, 6)), (normal(2, 3, 8, 8),)),
        tolerance=(1e-4, 1e-5),
    ),
    Case("unet", lambda: (UNet(), (normal(1, 3, 8, 8),)), tolerance=(1e-4, 1e-5)),
    Case("language", lambda: (Language(), (integers(2, 5, low=0, high=11),)), tolerance=(1e-4, 1e-5)),
    Case("patches", lambda: (Patches(), (normal(2, 3, 8, 8),)), tolerance=(1e-4, 1e-5)),
    Case("speech", lambda: (Speech(), (normal(2, 4, 8),)), tolerance=(1e-4, 1e-5)),
    Case("autoencoder", lambda: (Autoencoder(), (normal(3, 6), normal(3, 4)))),
    Case("mixer", lambda: (Mixer(), (normal(2, 6, 4),))),
)
def test_models(case, output_type):
    check(case, output_type)
