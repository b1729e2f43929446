"""Networks of the table of quantized models that no package here has."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class KeywordSpotting(nn.Sequential):
    """DS-CNN: depthwise separable convolutions over a spectrogram."""

    def __init__(self) -> None:
        def block() -> list[nn.Module]:
            depthwise = nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False)
            pointwise = nn.Conv2d(64, 64, 1, bias=False)
            return [depthwise, nn.BatchNorm2d(64), nn.ReLU(), pointwise, nn.BatchNorm2d(64), nn.ReLU()]

        stem = [nn.Conv2d(1, 64, (10, 4), stride=2, padding=(5, 1), bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        blocks = [each for _ in range(4) for each in block()]
        super().__init__(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))


def _conv(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return a convolution with the padding "same" for odd kernels, and batch normalization."""
    return [nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(after)]


class UNet(nn.Module):
    """Three levels with concatenations; the way up is a transposed convolution, and one bilinear resize."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()

        def twice(before: int, after: int) -> nn.Sequential:
            return nn.Sequential(*_conv(before, after, 3), nn.ReLU(), *_conv(after, after, 3), nn.ReLU())

        self.first, self.second, self.deep = twice(3, width), twice(width, 2 * width), twice(2 * width, 4 * width)
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.third, self.fourth = twice(4 * width, 2 * width), twice(3 * width, width)
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        up = self.third(torch.cat([second, self.up(self.deep(F.max_pool2d(second, 2)))], 1))
        up = F.interpolate(up, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(self.fourth(torch.cat([first, up], 1)))


class SqueezeExcitation(nn.Module):
    """Factors of channels from their means."""

    def __init__(self, channels: int, squeezed: int):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.expand(torch.relu(self.reduce(F.adaptive_avg_pool2d(x, 1))))
        return x * F.hardsigmoid(scale)


class InvertedResidual(nn.Module):
    """An expansion, a depthwise convolution and a projection, with an addition where sizes allow."""

    def __init__(
        self, before: int, expanded: int, after: int, kernel: int, stride: int, act: type[nn.Module], squeeze: bool
    ):
        super().__init__()
        parts = [*_conv(before, expanded, 1), act()] if expanded != before else []
        parts += [*_conv(expanded, expanded, kernel, stride, expanded), act()]
        parts += [SqueezeExcitation(expanded, max(8, expanded // 4 // 8 * 8))] if squeeze else []
        self.body = nn.Sequential(*parts, *_conv(expanded, after, 1))
        self.added = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.added else self.body(x)


class MobileNetV3Small(nn.Sequential):
    """Howard et al. 2019, table 2."""

    def __init__(self, classes: int = 1000) -> None:
        hard, plain = nn.Hardswish, nn.ReLU
        rows = (
            *((3, 16, 16, 2, plain, True), (3, 72, 24, 2, plain, False), (3, 88, 24, 1, plain, False)),
            *((5, 96, 40, 2, hard, True), (5, 240, 40, 1, hard, True), (5, 240, 40, 1, hard, True)),
            *((5, 120, 48, 1, hard, True), (5, 144, 48, 1, hard, True), (5, 288, 96, 2, hard, True)),
            *((5, 576, 96, 1, hard, True), (5, 576, 96, 1, hard, True)),
        )
        parts, before = [*_conv(3, 16, 3, 2), hard()], 16
        for kernel, expanded, after, stride, act, squeeze in rows:
            parts.append(InvertedResidual(before, expanded, after, kernel, stride, act, squeeze))
            before = after
        parts += [*_conv(96, 576, 1), hard(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*parts, nn.Linear(576, 1024), hard(), nn.Linear(1024, classes))


class EfficientNetLite(nn.Sequential):
    """EfficientNet-Lite0: Tan and Le 2019 without squeeze-and-excitation, and with ReLU6."""

    def __init__(self, classes: int = 1000) -> None:
        rows = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5))
        parts, before = [*_conv(3, 32, 3, 2), nn.ReLU6()], 32
        for factor, after, count, stride, kernel in (*rows, (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)):
            for index in range(count):
                step = stride if index == 0 else 1
                block = InvertedResidual(before, before * factor, after, kernel, step, nn.ReLU6, False)
                parts.append(block)
                before = after
        parts += [*_conv(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*parts, nn.Linear(1280, classes))


class Recurrent(nn.Module):
    """An LSTM and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(x)[0][:, -1])


def anomaly_detector() -> nn.Module:
    """Return the autoencoder of MLPerf Tiny: linear layers of 128, with 8 in the middle."""
    sizes = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(128, 640))


class _LinearBottleneck(nn.Module):
    """An inverted residual block of MobileNetV2."""

    def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        first = [*_conv(before, wide, 1), nn.ReLU6()] if expansion > 1 else []
        self.layers = nn.Sequential(*first, *_conv(wide, wide, 3, stride, wide), nn.ReLU6(), *_conv(wide, after, 1))
        self.is_residual = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


def person_detector(width: float = 0.35) -> nn.Module:
    """Return MobileNetV2 with two classes."""

    def scaled(channels: int) -> int:
        return max(8, int(channels * width + 4) // 8 * 8)

    before = scaled(32)
    layers: list[nn.Module] = [*_conv(3, before, 3, 2), nn.ReLU6()]
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, channels, count, stride in rows:
        for number in range(count):
            layers.append(_LinearBottleneck(before, scaled(channels), 1 if number else stride, expansion))
            before = scaled(channels)
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 2)]
    return nn.Sequential(*layers, *_conv(before, 1280, 1), nn.ReLU6(), *pooled)
