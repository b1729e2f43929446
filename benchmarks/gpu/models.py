"""The models of `benchmarks.gpu`, in PyTorch alone: the same code prepares them on one machine and runs on the device.

Weights are random. They need not agree between the machines: the device compares with its own eager run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Block(nn.Module):
    """A layer of a transformer: normalized before attention and the feed-forward part, or after them."""

    def __init__(self, width: int, heads: int, causal: bool = False, after: bool = False):
        super().__init__()
        self.heads, self.causal, self.after = heads, causal, after
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def attention(self, x: Tensor) -> Tensor:
        """Return the attention of each position to all, or to those before it."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the new hidden states."""
        if self.after:
            x = self.first(x + self.attention(x))
            return self.second(x + self.down(F.gelu(self.up(x))))
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Bert(nn.Module):
    """BERT-base: embeddings and 12 layers."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12, words: int = 30522, length: int = 512):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([Block(width, heads, after=True) for _ in range(layers)])

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the hidden states."""
        x = self.norm(self.words(tokens) + self.places.weight[: tokens.shape[1]])
        for layer in self.layers:
            x = layer(x)
        return x


class Gpt2(nn.Module):
    """GPT-2 of 124M parameters, with the logits of the last position."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12, words: int = 50257, length: int = 1024):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList([Block(width, heads, causal=True) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits."""
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x[:, -1]), self.words.weight)


class Vit(nn.Module):
    """ViT-B/16."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12, size: int = 224):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.start = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // 16) ** 2 + 1, width) * 0.02)
        self.layers = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """Return logits."""
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.start.expand(x.shape[0], -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[:, 0]))


class WhisperEncoder(nn.Module):
    """The encoder of Whisper-tiny."""

    def __init__(self, width: int = 384, heads: int = 6, layers: int = 4, length: int = 1500):
        super().__init__()
        self.one, self.two = nn.Conv1d(80, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, sound: Tensor) -> Tensor:
        """Return the hidden states."""
        x = F.gelu(self.two(F.gelu(self.one(sound)))).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Bottleneck(nn.Module):
    """A residual block of ResNet-50."""

    def __init__(self, inner: int, width: int, stride: int):
        super().__init__()
        self.one, self.two = nn.Conv2d(inner, width, 1, bias=False), nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.three = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width), nn.BatchNorm2d(4 * width)])
        changes = stride > 1 or inner != 4 * width
        short = nn.Sequential(nn.Conv2d(inner, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.short = short if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the new image."""
        y = F.relu(self.norms[0](self.one(x)))
        y = F.relu(self.norms[1](self.two(y)))
        return F.relu(self.norms[2](self.three(y)) + self.short(x))


class ResNet(nn.Module):
    """ResNet-50."""

    def __init__(self, depths: tuple[int, ...] = (3, 4, 6, 3), width: int = 64):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        blocks, inner = list[nn.Module](), width
        for stage, depth in enumerate(depths):
            for at in range(depth):
                blocks.append(Bottleneck(inner, width << stage, 2 if stage and not at else 1))
                inner = 4 * width << stage
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inner, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """Return logits."""
        x = F.max_pool2d(F.relu(self.norm(self.stem(image))), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


class UNet(nn.Module):
    """A U-Net of four scales, with group normalization and SiLU."""

    def __init__(self, width: int = 64, scales: int = 4):
        super().__init__()
        widths = [width << at for at in range(scales)]
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList([self.pair(a, b) for a, b in zip([width, *widths], widths, strict=False)])
        self.up = nn.ModuleList([self.pair(b + a, a) for a, b in pairwise(widths)])
        self.last = nn.Conv2d(width, 3, 1)

    @staticmethod
    def pair(inner: int, outer: int) -> nn.Module:
        """Return two convolutions."""
        parts = [nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(8, outer), nn.SiLU()]
        return nn.Sequential(*parts, nn.Conv2d(outer, outer, 3, padding=1), nn.GroupNorm(8, outer), nn.SiLU())

    def forward(self, image: Tensor) -> Tensor:
        """Return an image."""
        x, kept = self.first(image), list[Tensor]()
        for at, pair in enumerate(self.down):
            x = pair(F.avg_pool2d(x, 2) if at else x)
            kept.append(x)
        for pair, side in reversed(list(zip(self.up, kept, strict=False))):
            x = pair(torch.cat([F.interpolate(x, scale_factor=2.0, mode="nearest"), side], 1))
        return self.last(x)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Normalize in float32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Return ``x`` with rotary positions; ``angles`` has a row for each position."""
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


class LlamaLayer(nn.Module):
    """A layer of Llama 3.2 1B; with a cache of ``cache`` positions it takes one token."""

    rates: Tensor

    def __init__(self, width: int = 2048, heads: int = 32, shared: int = 8, inner: int = 8192, cache: int = 0):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        linear = lambda a, b: nn.Linear(a, b, bias=False)  # noqa: E731
        self.q, self.k, self.v = (
            linear(width, width),
            linear(width, shared * self.size),
            linear(width, shared * self.size),
        )
        self.o, self.gate, self.up, self.down = (
            linear(width, width),
            linear(width, inner),
            linear(width, inner),
            linear(inner, width),
        )
        self.one, self.two = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.register_buffer("rates", 5e5 ** -(torch.arange(0, self.size, 2) / self.size), persistent=False)
        if cache:
            self.register_buffer("keys", torch.zeros(1, shared, cache, self.size))
            self.register_buffer("values", torch.zeros(1, shared, cache, self.size))

    def heads_of(self, x: Tensor, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, by head."""
        y, size = rms_norm(x, self.one), (*x.shape[:2], -1, self.size)
        angles = place[:, None].float() * self.rates.float()
        q, k, v = (part(y).view(size).transpose(1, 2) for part in (self.q, self.k, self.v))
        return rotated(q, angles), rotated(k, angles), v

    def rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Return the new hidden states after attention."""
        x = x + self.o(mixed.transpose(1, 2).reshape(x.shape))
        y = rms_norm(x, self.two)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Prefill(LlamaLayer):
    """The layer for all tokens of a prompt."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the new hidden states."""
        q, k, v = self.heads_of(x, torch.arange(x.shape[1], device=x.device))
        more = self.heads // self.shared
        k, v = k.repeat_interleave(more, 1), v.repeat_interleave(more, 1)
        return self.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))


class Decode(LlamaLayer):
    """The layer for one token, with its keys and values in buffers."""

    keys: Tensor
    values: Tensor

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        """Return the new hidden states; write the row ``place`` of the cache."""
        q, k, v = self.heads_of(x, place)
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        more = self.heads // self.shared
        mask = (torch.arange(self.keys.shape[2], device=x.device) <= place)[None, None, None]
        keys, values = self.keys.repeat_interleave(more, 1), self.values.repeat_interleave(more, 1)
        return self.rest(x, F.scaled_dot_product_attention(q, keys, values, attn_mask=mask))


class Dlrm(nn.Module):
    """DLRM: 26 tables, dense features, products of all pairs."""

    pairs: Tensor

    def __init__(self, tables: int = 26, rows: int = 20000, width: int = 64):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(rows, width) for _ in range(tables)])
        sizes = ([13, 512, 256, width], [width + tables * (tables + 1) // 2, 512, 256, 1])
        self.bottom, self.top = (nn.ModuleList([nn.Linear(*pair) for pair in pairwise(each)]) for each in sizes)
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", pairs[0] * (tables + 1) + pairs[1], persistent=False)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """Return a logit for each row."""
        for layer in self.bottom:
            dense = F.relu(layer(dense))
        rows = torch.stack([dense, *(table(ids[:, at]) for at, table in enumerate(self.tables))], 1)
        products = torch.bmm(rows, rows.transpose(1, 2)).flatten(1)[:, self.pairs]
        x = torch.cat([dense, products], 1)
        for layer in self.top[:-1]:
            x = F.relu(layer(x))
        return self.top[-1](x)


class Lstm(nn.Module):
    """Two layers of an LSTM, and what it says about the last element."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(width, width, num_layers=2, batch_first=True), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.lstm(x)[0][:, -1])


class Mixtral(nn.Module):
    """The experts of a block of Mixtral: all compute all tokens, and two count for each."""

    def __init__(self, width: int = 1024, inner: int = 3584, experts: int = 8):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.gate, self.up = (nn.Parameter(torch.randn(experts, width, inner) * width**-0.5) for _ in range(2))
        self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the two best experts of each token."""
        weights, chosen = self.router(x).float().softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        shares = torch.zeros(x.shape[0], self.gate.shape[0], device=x.device).scatter(1, chosen, weights).to(x.dtype)
        all_tokens = x.expand(self.gate.shape[0], -1, -1)
        y = F.silu(torch.bmm(all_tokens, self.gate)) * torch.bmm(all_tokens, self.up)
        return (torch.bmm(y, self.down) * shares.t()[:, :, None]).sum(0)


class Addition(nn.Module):
    """One addition: what a call costs apart from its work."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum."""
        return x + y


@dataclass(frozen=True)
class Case:
    """A model and its inputs."""

    model: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]


def _tokens(batch: int, length: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randint(0, 1000, (batch, length)),)


def _normal(*sizes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(*size) for size in sizes)


CASES = {
    "addition": Case(Addition, _normal((16, 16), (16, 16))),
    "bert_base": Case(Bert, _tokens(8, 128)),
    "resnet50": Case(ResNet, _normal((16, 3, 224, 224))),
    "vit_b_16": Case(Vit, _normal((8, 3, 224, 224))),
    "gpt2": Case(Gpt2, _tokens(4, 256)),
    "llama_1b_layer_prefill": Case(Prefill, _normal((1, 512, 2048))),
    "llama_1b_layer_decode": Case(lambda: Decode(cache=1024), lambda: (torch.randn(1, 1, 2048), torch.tensor([700]))),
    "whisper_tiny_encoder": Case(WhisperEncoder, _normal((1, 80, 3000))),
    "unet": Case(UNet, _normal((2, 3, 256, 256))),
    "dlrm": Case(Dlrm, lambda: (torch.randn(2048, 13), torch.randint(0, 20000, (2048, 26)))),
    "lstm": Case(Lstm, _normal((32, 64, 512))),
    "mixtral_block": Case(Mixtral, _normal((256, 1024))),
}
TINY = {
    "tiny_bert": Case(lambda: Bert(32, 2, 1, 64, 16), lambda: (torch.randint(0, 64, (2, 8)),)),
    "tiny_decode": Case(lambda: Decode(32, 4, 2, 64, cache=8), lambda: (torch.randn(1, 1, 32), torch.tensor([3]))),
}
"""For the tests."""


def build(name: str, dtype: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return the model ``name`` in a dtype of `DTYPES`, ready to run, and its inputs, on the CPU."""
    case = {**CASES, **TINY}[name]
    torch.manual_seed(0)
    model, inputs = case.model().eval().requires_grad_(False), case.inputs()
    wanted = DTYPES[dtype]
    return model.to(wanted), tuple(one.to(wanted) if one.is_floating_point() else one for one in inputs)
