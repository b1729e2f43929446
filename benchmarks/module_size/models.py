"""Whole models: the small ones of the zoo, and those of other families, as deep as published and narrower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers as T
from torch import nn

from benchmarks.run_time_models import MobileNet
from testing.families import FAMILIES
from testing.zoo import ZOO, OneResult

Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def _image() -> torch.Tensor:
    return torch.randn((2, 3, 64, 64), generator=torch.Generator().manual_seed(1))


def _classifier(model: type[Any], config: Any) -> Built:
    torch.manual_seed(0)
    return OneResult(model(config), "logits", "pixel_values").eval(), (_image(),), {}


def _mobilenet() -> Built:
    torch.manual_seed(0)
    return MobileNet().eval(), (_image(),), {}


_NARROW: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [16, 16, 32, 32]}
_FURTHER: Mapping[str, Callable[[], Built]] = {
    "resnet18": lambda: _classifier(
        T.ResNetForImageClassification,
        T.ResNetConfig(depths=[2, 2, 2, 2], **_NARROW, layer_type="basic"),
    ),
    "resnet50": lambda: _classifier(T.ResNetForImageClassification, T.ResNetConfig(**_NARROW)),
    "mobilenet_v2": lambda: _classifier(
        T.MobileNetV2ForImageClassification, T.MobileNetV2Config(image_size=64, depth_multiplier=0.25)
    ),
    "mobilenet": _mobilenet,
}
_FAMILIES = ("EfficientNetForImageClassification", "Qwen3ForCausalLM", "Wav2Vec2ForCTC", "dlrm", "diffusion_unet")
MODELS: Mapping[str, Callable[[], Built]] = {
    **{name: entry.build for name, entry in ZOO.items() if entry.small},
    **_FURTHER,
    **{name: FAMILIES[name].build for name in _FAMILIES},
}
"""Functions that return a model in eval mode, with positional and keyword inputs, by name."""
