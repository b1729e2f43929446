"""Recommenders, graph networks, flows and generative models, small, in plain `torch.nn`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from testing.families.vision import Build, seeded, whole


class Recommender(nn.Module):
    """DLRM: bags of embeddings of three kinds, and products of all pairs of features."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(50, 8, mode=mode) for mode in ("sum", "mean", "max"))
        self.dense, self.top = nn.Sequential(nn.Linear(5, 8), nn.ReLU()), nn.Linear(8 + 6, 1)

    def forward(self, dense: Tensor, ids: Tensor, offsets: Tensor) -> Tensor:
        bottom = self.dense(dense)
        features = torch.stack([bottom, *(bag(ids, offsets) for bag in self.bags)], 1)
        pairs = features @ features.mT
        rows, columns = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([bottom, pairs[:, rows, columns]], 1)).sigmoid()


class WideAndDeep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.embed = nn.Linear(24, 1), nn.Embedding(40, 6)
        self.deep = nn.Sequential(nn.Linear(18, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids: Tensor) -> Tensor:
        crossed = F.one_hot(ids % 8, 8).flatten(1).float()
        return (self.wide(crossed) + self.deep(self.embed(ids).flatten(1))).sigmoid()


class GraphConvolution(nn.Module):
    """GCN: messages along edges, scaled by degrees, added up at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        start, end = edges
        degree = torch.ones(x.shape[0]).scatter_add(0, end, torch.ones(end.shape[0]))
        scale = (degree[start] * degree[end]).rsqrt().unsqueeze(-1)
        for layer in (self.first, self.second):
            x = layer(x)
            x = F.relu(torch.zeros_like(x).index_add(0, end, x[start] * scale) + x / degree.unsqueeze(-1))
        return x


class GraphAttention(nn.Module):
    """GAT: a softmax over the edges of each node."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.heads = nn.Linear(6, 8), 2
        self.attention = nn.Parameter(seeded(2, 2, 4))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        start, end = edges
        h = self.project(x).view(-1, self.heads, 4)
        score = F.leaky_relu((h[start] * self.attention[0]).sum(-1) + (h[end] * self.attention[1]).sum(-1), 0.2)
        index = end.unsqueeze(-1).expand_as(score)
        top = torch.full((x.shape[0], self.heads), -math.inf).scatter_reduce(0, index, score, "amax")
        weight = torch.exp(score - top[end])
        total = torch.zeros(x.shape[0], self.heads).scatter_add(0, index, weight)
        weight = weight / (total[end] + 1e-16)
        return torch.zeros_like(h).index_add(0, end, h[start] * weight.unsqueeze(-1)).flatten(1)


class GraphIsomorphism(nn.Module):
    """GIN and a readout per graph: sums of messages, the mean and the maximum of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        total.index_add_(0, edges[1], x[edges[0]])
        x = self.mlp((1 + self.eps) * x + total)
        index = graph.unsqueeze(-1).expand_as(x)
        zero = torch.zeros(2, x.shape[1])
        mean = zero.scatter_reduce(0, index, x, "mean", include_self=False)
        return torch.cat([mean, zero.scatter_reduce(0, index, x, "amax", include_self=False)], -1)


class Coupling(nn.Module):
    """RealNVP: masked affine couplings, and the logarithm of the change of volume."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 12)) for _ in range(2))
        self.register_buffer("mask", torch.tensor([1.0, 0, 1, 0, 1, 0]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        volume = x.new_zeros(x.shape[0])
        for i, net in enumerate(self.nets):
            mask = self.mask if i % 2 else 1 - self.mask
            scale, shift = net(x * mask).chunk(2, -1)
            scale = torch.tanh(scale) * (1 - mask)
            x = x * mask + (1 - mask) * (x * scale.exp() + shift)
            volume = volume + scale.sum(-1)
        return x, volume - 0.5 * (x * x).sum(-1) - 3 * math.log(2 * math.pi)


class Glow(nn.Module):
    """An activation norm, an invertible 1×1 convolution, its way back, and the determinant."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(seeded(4, 4))[0] + 0.1)
        self.scale = nn.Parameter(seeded(1, 4, 1, 1) * 0.1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = F.pixel_unshuffle(x, 2) * self.scale.exp()
        found = F.conv2d(x, self.weight[:, :, None, None])
        back = F.conv2d(found, torch.linalg.inv(self.weight)[:, :, None, None])
        return found, back, torch.linalg.slogdet(self.weight)[1] + self.scale.sum()


class Spline(nn.Module):
    """A neural spline flow: rational quadratics between knots that are found by a search."""

    def __init__(self, bins: int = 5):
        super().__init__()
        self.net, self.bins = nn.Linear(4, 4 * (3 * bins + 1)), bins

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        raw = self.net(x).view(*x.shape, -1)
        widths, heights, slopes = raw.split([self.bins, self.bins, self.bins + 1], -1)
        widths, heights, slopes = widths.softmax(-1), heights.softmax(-1), F.softplus(slopes) + 1e-3
        left, low = (F.pad(each.cumsum(-1), (1, 0)) for each in (widths, heights))
        inside = x.sigmoid().unsqueeze(-1)
        place = torch.searchsorted(left[..., 1:-1].contiguous(), inside)
        w, h, at, base = (each.gather(-1, place) for each in (widths, heights, left, low))
        before, after = slopes.gather(-1, place), slopes.gather(-1, place + 1)
        t, s = (inside - at) / w, h / w
        below = s + (before + after - 2 * s) * t * (1 - t)
        found = base + h * (s * t * t + before * t * (1 - t)) / below
        slope = s * s * (after * t * t + 2 * s * t * (1 - t) + before * (1 - t) ** 2) / (below * below)
        return found.squeeze(-1), slope.log().sum((-1, -2))


class Autoencoder(nn.Module):
    """A variational autoencoder, whose noise is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 8))
        self.up = nn.Sequential(nn.Linear(4, 512), nn.Unflatten(1, (8, 8, 8)), nn.ConvTranspose2d(8, 1, 4, 2, 1))

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.down(x).chunk(2, -1)
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(-1)
        return self.up(mean + noise * torch.exp(0.5 * log_variance)).sigmoid(), divergence


class Twins(nn.Module):
    """Two inputs through one network, and how far apart they end."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(2, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten())

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.body(a), self.body(b)
        return F.cosine_similarity(a, b), F.pairwise_distance(F.normalize(a), F.normalize(b))


def timesteps(t: Tensor, width: int) -> Tensor:
    """Return sines and cosines of times."""
    angles = t.float().unsqueeze(-1) * torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2))
    return torch.cat([angles.cos(), angles.sin()], -1)


class Denoiser(nn.Module):
    """A diffusion U-Net: group norms, times, attention over pixels, resizing up."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.first, self.down = nn.Linear(16, 16), nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(16, 16, 3, 2, 1)
        self.norm, self.attention = nn.GroupNorm(4, 16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.up, self.last = nn.Conv2d(16, 16, 3, 1, 1), nn.Conv2d(32, 3, 3, 1, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        time = self.time(F.silu(timesteps(t, 16)))[:, :, None, None]
        fine = self.first(x) + time
        coarse = self.down(F.silu(self.norm(fine)))
        tokens = coarse.flatten(2).transpose(1, 2)
        tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        coarse = self.up(F.interpolate(tokens.transpose(1, 2).view_as(coarse), scale_factor=2.0, mode="nearest"))
        return self.last(torch.cat([fine, coarse], 1))


class DiffusionTransformer(nn.Module):
    """DiT: layer norms whose scales, shifts and gates come from the time and the class."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.label, self.out = nn.Conv2d(3, 32, 4, 4), nn.Embedding(5, 32), nn.Linear(32, 48)
        self.norm = nn.LayerNorm(32, elementwise_affine=False)
        self.modulation, self.qkv, self.mlp = nn.Linear(32, 192), nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        n, tokens = x.shape[0], self.patch(x).flatten(2).transpose(1, 2)
        given = self.modulation(F.silu(timesteps(t, 32) + self.label(label))).unsqueeze(1)
        shift, scale, gate, shift2, scale2, gate2 = given.chunk(6, -1)
        q, k, v = self.qkv(self.norm(tokens) * (1 + scale) + shift).view(n, -1, 3, 4, 8).permute(2, 0, 3, 1, 4)
        tokens = tokens + gate * F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        tokens = tokens + gate2 * F.gelu(self.mlp(self.norm(tokens) * (1 + scale2) + shift2), approximate="tanh")
        return F.fold(self.out(tokens).transpose(1, 2), x.shape[-2:], 4, stride=4)


EDGES = whole(2, 14, below=7)
TIMES = torch.tensor([3, 250])
STRUCTURES: dict[str, Build] = {
    "dlrm": lambda: (Recommender(), (seeded(3, 5), whole(9, below=50), torch.tensor([0, 2, 5]))),
    "wide_and_deep": lambda: (WideAndDeep(), (whole(4, 3, below=40),)),
    "graph_convolution": lambda: (GraphConvolution(), (seeded(7, 6), EDGES)),
    "graph_attention": lambda: (GraphAttention(), (seeded(7, 6), EDGES)),
    "graph_isomorphism": lambda: (GraphIsomorphism(), (seeded(7, 6), EDGES, torch.tensor([0, 0, 0, 1, 1, 1, 1]))),
    "real_nvp": lambda: (Coupling(), (seeded(4, 6),)),
    "glow": lambda: (Glow(), (seeded(2, 1, 8, 8),)),
    "neural_spline": lambda: (Spline(), (seeded(3, 4),)),
    "vae": lambda: (Autoencoder(), (seeded(2, 1, 16, 16), seeded(2, 4))),
    "siamese": lambda: (Twins(), (seeded(2, 2, 12), seeded(2, 2, 12) + 1)),
    "diffusion_unet": lambda: (Denoiser(), (seeded(2, 3, 16, 16), TIMES)),
    "diffusion_transformer": lambda: (DiffusionTransformer(), (seeded(2, 3, 16, 16), TIMES, torch.tensor([1, 4]))),
}
