"""The models of `run_time.py`: random weights, by the configurations of transformers, in the sizes that people use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as T


class Outputs(torch.nn.Module):
    """Returns the tensors that a model of transformers returns."""

    def __init__(self, model: torch.nn.Module, **kwargs: Any):
        super().__init__()
        self.model = model
        self.kwargs = kwargs

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Return a tuple of tensors, or what the model returns if that is no mapping."""
        found = self.model(*inputs, **self.kwargs)
        return tuple(v for v in found.values() if isinstance(v, torch.Tensor)) if hasattr(found, "values") else found


class Lstm(torch.nn.Module):
    """Two layers of an LSTM, and what it says about the last element."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(256, 256, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.head(self.lstm(x)[0][:, -1])


class _Addition(torch.nn.Module):
    """One addition: what a call costs beside its work."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return x + y


def _conv_block(inner: int, outer: int, stride: int) -> torch.nn.Sequential:
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(inner, inner * 4, 1, bias=False), nn.BatchNorm2d(inner * 4), nn.Hardswish()),
        *(nn.Conv2d(inner * 4, inner * 4, 5, stride, 2, groups=inner * 4, bias=False), nn.BatchNorm2d(inner * 4)),
        *(nn.Hardswish(), nn.Conv2d(inner * 4, outer, 1, bias=False), nn.BatchNorm2d(outer)),
    )


MOBILENET = [(16, 24, 2), (24, 24, 1), (24, 40, 2), (40, 40, 1), (40, 80, 2), (80, 80, 1), (80, 112, 1), (112, 160, 2)]
"""The channels before and after each block of `MobileNet`, and its stride."""


class MobileNet(torch.nn.Sequential):
    """A network of the blocks of MobileNetV3, without squeeze and excitation."""

    def __init__(self) -> None:
        nn = torch.nn
        blocks = [_conv_block(*each) for each in MOBILENET]
        stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish())
        super().__init__(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(160, 1000))
        for each in self.modules():
            if isinstance(each, nn.Conv2d):  # numbers would vanish from layer to layer
                nn.init.kaiming_normal_(each.weight, nonlinearity="relu")


def _tokens(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return (torch.randint(0, 1000, (batch, length)),)


def _image(batch: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, 224, 224),)


def _llama_layer() -> torch.nn.Module:
    config = T.LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=1,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=1000,
    )
    return Outputs(T.LlamaModel(config), use_cache=False)


MODELS: dict[str, Callable[[int], tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]] = {
    "bert_base": lambda batch: (Outputs(T.BertModel(T.BertConfig())), _tokens(batch, 128)),
    "resnet50": lambda batch: (Outputs(T.ResNetForImageClassification(T.ResNetConfig())), _image(batch)),
    "vit_b_16": lambda batch: (Outputs(T.ViTModel(T.ViTConfig())), _image(batch)),
    "mobilenet": lambda batch: (MobileNet(), _image(batch)),
    "convnext_tiny": lambda batch: (Outputs(T.ConvNextModel(T.ConvNextConfig())), _image(batch)),
    "swin_tiny": lambda batch: (Outputs(T.SwinModel(T.SwinConfig())), _image(batch)),
    "gpt2": lambda batch: (Outputs(T.GPT2Model(T.GPT2Config()), use_cache=False), _tokens(batch, 128)),
    "llama_1b_layer_prefill": lambda batch: (_llama_layer(), _tokens(batch, 128)),
    "llama_1b_layer_decode": lambda batch: (_llama_layer(), _tokens(batch, 1)),
    "addition": lambda batch: (_Addition(), (torch.randn(batch, 16), torch.randn(batch, 16))),
    "lstm": lambda batch: (Lstm(), (torch.randn(batch, 64, 256),)),
}
"""Each returns a model and example inputs of a batch size."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load(name: str, batch: int, dtype: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]:
    """Return the model ``name`` in a dtype of `DTYPES`, and its inputs."""
    model, inputs = MODELS[name](batch)
    wanted = DTYPES[dtype]
    inputs = tuple(each.to(wanted) if each.is_floating_point() else each for each in inputs)
    return model.eval().to(wanted), inputs, {}
