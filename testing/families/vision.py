"""Networks for images, grids and points, small, in plain `torch.nn`."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def seeded(*shape: int) -> Tensor:
    """Return the same normal numbers whenever it is called."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def whole(*shape: int, below: int) -> Tensor:
    """Return the same whole numbers whenever it is called."""
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(1))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class InvertedResidual(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        wide = channels * 4
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish()),
            *(nn.Conv2d(wide, wide, 5, padding=2, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.Hardswish()),
            *(SqueezeExcite(wide), nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def mobile() -> nn.Module:
    """MobileNetV3: depthwise convolutions, squeeze and excitation, hard swish."""
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.Hardswish())
    return nn.Sequential(stem, InvertedResidual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def shuffle() -> nn.Module:
    """ShuffleNet: grouped convolutions and a shuffle of channels."""
    return nn.Sequential(
        *(nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 12, 1, groups=3), nn.ChannelShuffle(3)),
        *(nn.Conv2d(12, 12, 3, groups=12), nn.MaxPool2d(2, ceil_mode=True), nn.LocalResponseNorm(3), nn.SELU()),
        *(nn.AlphaDropout(0.3), nn.Flatten(), nn.LazyLinear(4)),
    )


class Pyramid(nn.Module):
    """A feature pyramid: lateral convolutions, and coarse features resized onto fine ones."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(nn.Conv2d(3 if not i else 8 * i, 8 * i + 8, 3, 2, 1) for i in range(3))
        self.lateral = nn.ModuleList(nn.Conv2d(8 * i + 8, 8, 1) for i in range(3))
        self.smooth = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        for stage in self.stages:
            x = F.relu(stage(x))
            found.append(x)
        levels = [lateral(each) for lateral, each in zip(self.lateral, found, strict=True)]
        for i in (1, 0):
            levels[i] = levels[i] + F.interpolate(levels[i + 1], size=levels[i].shape[-2:], mode="nearest")
        return [smooth(level) for smooth, level in zip(self.smooth, levels, strict=True)]


class Detector(nn.Module):
    """A one-stage detector: class scores and box offsets per anchor, decoded, and the best few of all."""

    def __init__(self, classes: int = 5, anchors: int = 3):
        super().__init__()
        self.pyramid, self.anchors, self.classes = Pyramid(), anchors, classes
        self.scores, self.boxes = nn.Conv2d(8, anchors * classes, 3, 1, 1), nn.Conv2d(8, anchors * 4, 3, 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        boxes: list[Tensor] = []
        scores: list[Tensor] = []
        for level, features in enumerate(self.pyramid(x)):
            n, _, h, w = features.shape
            stride = 2.0 ** (level + 1)
            ys, xs = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            centres = torch.stack([xs, ys], -1).reshape(1, -1, 1, 2) * stride
            sizes = torch.tensor([1.0, 2.0, 4.0]).reshape(1, 1, -1, 1) * stride
            offsets = self.boxes(features).permute(0, 2, 3, 1).reshape(n, h * w, self.anchors, 4)
            middle = centres + offsets[..., :2] * sizes
            half = sizes * offsets[..., 2:].clamp(max=math.log(16)).exp() / 2
            boxes.append(torch.cat([middle - half, middle + half], -1).flatten(1, 2).clamp(0, 32))
            found = self.scores(features).permute(0, 2, 3, 1).reshape(n, -1, self.classes)
            scores.append(found.sigmoid())
        best, kind = torch.cat(scores, 1).max(-1)
        top, where = best.topk(8, -1)
        chosen = torch.cat(boxes, 1).gather(1, where.unsqueeze(-1).expand(-1, -1, 4))
        return chosen, top, kind.gather(1, where)


class Suppression(nn.Module):
    """Boxes that overlap a better one, found by all pairs in a fixed number of rounds."""

    def forward(self, boxes: Tensor, scores: Tensor) -> Tensor:
        corner, size = boxes[:, :2], boxes[:, 2:].abs()
        low, high = torch.maximum(corner[:, None], corner), torch.minimum((corner + size)[:, None], corner + size)
        shared = (high - low).clamp(min=0).prod(-1)
        area = size.prod(-1)
        better = (shared / (area[:, None] + area - shared) > 0.3) & (scores[:, None] < scores)
        keep = torch.ones_like(scores, dtype=torch.bool)
        for _ in range(4):
            keep = ~(better & keep).any(1)
        return torch.where(keep, scores, 0.0)


class Segmenter(nn.Module):
    """U-Net with transposed convolutions, and atrous pyramid pooling at the bottom."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)])
        self.atrous = nn.ModuleList(nn.Conv2d(16, 8, 3, padding=rate, dilation=rate) for rate in (1, 2, 3))
        self.up = nn.ConvTranspose2d(24, 8, 2, stride=2)
        self.head = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = F.leaky_relu(self.down[0](x), 0.1)
        coarse = F.leaky_relu(self.down[1](F.max_pool2d(fine, 2)), 0.1)
        coarse = torch.cat([rate(coarse) for rate in self.atrous], 1)
        found = self.head(torch.cat([fine, self.up(coarse)], 1))
        return F.interpolate(found, scale_factor=2, mode="bilinear", align_corners=False).argmax(1)


class Volumes(nn.Module):
    """C3D: convolutions, norms and pools of three axes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d((1, 2, 2))),
            *(nn.Conv3d(8, 8, (3, 1, 1), padding=(1, 0, 0)), nn.AvgPool3d(2), nn.ConvTranspose3d(8, 4, 2, stride=2)),
            *(nn.InstanceNorm3d(4, affine=True), nn.PReLU(4), nn.AdaptiveAvgPool3d((2, 1, 1)), nn.Flatten()),
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class MlpMixer(nn.Module):
    def __init__(self, patches: int = 16, width: int = 24):
        super().__init__()
        self.embed = nn.Conv2d(3, width, 8, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.tokens = nn.Sequential(nn.Linear(patches, 32), nn.GELU(), nn.Linear(32, patches))
        self.channels = nn.Sequential(nn.Linear(width, 48), nn.GELU(approximate="tanh"), nn.Linear(48, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return self.norms[2](x + self.channels(self.norms[1](x))).mean(1)


class Capsules(nn.Module):
    """Capsules with three rounds of routing by agreement."""

    def __init__(self) -> None:
        super().__init__()
        self.primary = nn.Conv2d(3, 32, 9, 4)
        self.weight = nn.Parameter(seeded(144, 5, 8, 8) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        votes = self._squash(self.primary(x).view(n, -1, 8))
        votes = torch.einsum("nid,icdo->nico", votes, self.weight[: votes.shape[1]])
        logits = torch.zeros(votes.shape[:3])
        found = votes[:, 0]
        for _ in range(3):
            found = self._squash((logits.softmax(2).unsqueeze(-1) * votes).sum(1))
            logits = logits + (votes * found.unsqueeze(1)).sum(-1)
        return torch.linalg.norm(found, dim=-1)

    def _squash(self, x: Tensor) -> Tensor:
        size = (x * x).sum(-1, keepdim=True)
        return x * size / ((1 + size) * torch.sqrt(size + 1e-8))


class Radiance(nn.Module):
    """NeRF: encoded positions, an MLP, and colours summed along rays."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, origins: Tensor, directions: Tensor) -> Tensor:
        depth = torch.linspace(0.5, 3, 12)
        points = origins[:, None] + directions[:, None] * depth[:, None]
        angles = points.unsqueeze(-1) * 2.0 ** torch.arange(4)
        encoded = torch.cat([points, angles.sin().flatten(-2), angles.cos().flatten(-2)], -1)
        colour, density = self.body(encoded).split([3, 1], -1)
        alpha = 1 - torch.exp(-F.softplus(density[..., 0]) * 0.2)
        clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        return ((alpha * clear).unsqueeze(-1) * colour.sigmoid()).sum(1)


class Siren(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 32), nn.Linear(32, 32), nn.Linear(32, 1)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.sin(30 * layer(x))
        return self.layers[-1](x)


class MaskedConvolutions(nn.Module):
    """PixelCNN: kernels that see what is above and to the left."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 5, padding=2), nn.Conv2d(8, 16, 3, padding=1)
        self.register_buffer("mask", torch.ones(5, 5).triu(1).T.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.first.weight * self.mask, self.first.bias, padding=2)
        gate, value = self.second(F.elu(x)).chunk(2, 1)
        return (gate.sigmoid() * value.tanh()).log_softmax(1)


class SpatialTransformer(nn.Module):
    """An affine grid from a small network, and samples on it."""

    def __init__(self) -> None:
        super().__init__()
        self.angles = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 6), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        grid = F.affine_grid(self.angles(x).view(-1, 2, 3), list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


class Points(nn.Module):
    """Neighbours in space by distances and the nearest few, then a maximum over each group (DGCNN)."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.head = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        near = torch.cdist(x, x).topk(4, -1, largest=False)[1]
        n, p, k = near.shape
        others = x.gather(1, near.reshape(n, p * k, 1).expand(-1, -1, 3)).reshape(n, p, k, 3)
        edges = torch.cat([others - x.unsqueeze(2), x.unsqueeze(2).expand_as(others)], -1)
        return self.head(F.relu(self.edge(edges)).amax(2)).amax(1)


Build = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]

IMAGE = seeded(2, 3, 32, 32)
VISION: dict[str, Build] = {
    "mobilenet_v3": lambda: (mobile(), (IMAGE,)),
    "shufflenet": lambda: (initialized(shuffle(), IMAGE), (IMAGE,)),
    "feature_pyramid": lambda: (Pyramid(), (IMAGE,)),
    "detection_head": lambda: (Detector(), (IMAGE,)),
    "box_suppression": lambda: (Suppression(), (seeded(9, 4) * 2, seeded(9).sigmoid())),
    "unet_atrous": lambda: (Segmenter(), (IMAGE,)),
    "c3d": lambda: (Volumes(), (seeded(2, 3, 4, 16, 16),)),
    "mlp_mixer": lambda: (MlpMixer(), (IMAGE,)),
    "capsules": lambda: (Capsules(), (IMAGE,)),
    "nerf": lambda: (Radiance(), (seeded(5, 3), seeded(5, 3))),
    "siren": lambda: (Siren(), (seeded(9, 2),)),
    "pixelcnn": lambda: (MaskedConvolutions(), (seeded(2, 1, 12, 12),)),
    "spatial_transformer": lambda: (SpatialTransformer(), (seeded(2, 3, 16, 16),)),
    "point_cloud": lambda: (Points(), (seeded(2, 10, 3),)),
}


def initialized(model: nn.Module, *inputs: Tensor) -> nn.Module:
    """Return ``model`` after a call, which gives lazy layers their sizes."""
    model.eval()(*inputs)
    return model
