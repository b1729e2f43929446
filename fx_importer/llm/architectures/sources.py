"""The inputs of the encoders of encoder-decoders, and the keys and values that decoders compute from them once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, EncoderDecoderCache

from fx_importer.errors import UsageError
from fx_importer.llm.architectures.layers_cache import LayersCache
from fx_importer.llm.source_lines import definition

CROSS_KEY, CROSS_VALUE = "cross_key", "cross_value"
"""The names of the buffers of `CrossLayer`."""
SOURCE_LENGTHS = "source_lengths"
"""The name of the buffer with the number of tokens of each source, [B]."""
_DEFAULT_POSITIONS = 512
_FEATURES: dict[str, Callable[[Any], tuple[int, ...]]] = {
    "whisper": lambda config: (config.num_mel_bins, 2 * config.max_source_positions),
    "vision-encoder-decoder": lambda config: (config.encoder.num_channels, *_pair(config.encoder.image_size)),
}
"""The shapes of inputs that are not tokens, by model type, without the batch."""


def _pair(size: int | Sequence[int]) -> Sequence[int]:
    return (size, size) if isinstance(size, int) else size


def has_encoder(config: Any) -> bool:
    """Whether a transformers configuration is of an encoder-decoder."""
    return bool(getattr(config, "is_encoder_decoder", False))


@dataclass(frozen=True)
class EncoderInput:
    """The input of an encoder: tokens, padded at the end, or features of a fixed shape."""

    argument: str
    """The name of the model's argument."""
    features: tuple[int, ...] | None
    """The shape of the features of one sequence; None for tokens."""
    positions: int | None
    """The most tokens of a source; None for features."""

    def example(self, batch: int, dtype: torch.dtype, length: int | None = None) -> Tensor:
        """Return zeros: tokens int64 [B, length] or, by default, [B, positions]; features [B, …]."""
        if self.features is not None:
            return torch.zeros(batch, *self.features, dtype=dtype)
        return torch.zeros(batch, length or self.positions or 1, dtype=torch.int64)


def source_of(model: PreTrainedModel, positions: int | None) -> EncoderInput:
    """Return what the encoder of ``model`` reads.

    Args:
        model: a transformers encoder-decoder.
        positions: the most tokens of a source; by default the model's maximum, at most 512.

    Raises:
        UsageError: if the encoder reads something else than tokens or the features of a known shape, or
            ``positions`` does not fit.
    """
    config: Any = model.config
    argument = model.main_input_name
    if argument == "input_ids":
        most = getattr(config, "max_position_embeddings", None)
        number = min(most or _DEFAULT_POSITIONS, _DEFAULT_POSITIONS) if positions is None else positions
        if number < 1 or (most is not None and number > most):
            bound = "" if most is None else f" and at most {most}, for which the model was made"
            raise UsageError(f"a source of {number} positions: accepted is at least 1{bound}")
        return EncoderInput(argument, None, number)
    if config.model_type not in _FEATURES:
        raise UsageError(
            f"the encoder of {type(model).__name__} ({definition(type(model))}) reads '{argument}': accepted are "
            f"encoders of tokens, and the models {', '.join(_FEATURES)}, whose features have a fixed shape"
        )
    if positions is not None:
        raise UsageError(
            f"source_context={positions} for {type(model).__name__}, whose encoder reads features of a fixed shape: "
            "import it without source_context"
        )
    return EncoderInput(argument, tuple(_FEATURES[config.model_type](config)), None)


class CrossLayer(CacheLayerMixin):
    """The keys and values of a decoder's layer over the encoder's results, with position p in row p.

    Args:
        buffers: a module with the buffers ``cross_key`` and ``cross_value``, [B, H, S, D].
        is_new: whether the model's code computes them in this call, for the first of the S positions, and writes them
            here. It reads all rows otherwise.
    """

    is_compileable = True
    is_sliding = False

    def __init__(self, buffers: torch.nn.Module, *, is_new: bool):
        super().__init__()
        self.keys, self.values = buffers.get_buffer(CROSS_KEY), buffers.get_buffer(CROSS_VALUE)
        self.is_new = is_new
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the cache is already in buffers."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write keys and values, [B, H, s, D], and return them."""
        assert self.keys is not None
        assert self.values is not None
        rows = torch.arange(key_states.shape[2])
        self.keys.index_copy_(2, rows, key_states.to(self.keys.dtype))
        self.values.index_copy_(2, rows, value_states.to(self.values.dtype))
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of rows, and the position of the first."""
        assert self.keys is not None
        return self.keys.shape[2], 0

    def get_seq_length(self) -> int:
        """Return the number of rows; 0 if they are new."""
        return 0 if self.is_new else self.get_mask_sizes(1)[0]

    def get_max_length(self) -> int:
        """Return the number of rows."""
        return self.get_mask_sizes(1)[0]


def both_caches(own: Any, buffers: Sequence[torch.nn.Module], *, are_new: bool) -> EncoderDecoderCache:
    """Return the cache of an encoder-decoder.

    Args:
        own: the cache of the decoder's attention to its own tokens.
        buffers: a module for each layer: see `CrossLayer`.
        are_new: whether the model's code computes the keys and values of the source in this call.
    """
    layers: list[Any] = [CrossLayer(buffer, is_new=are_new) for buffer in buffers]
    return EncoderDecoderCache(own, LayersCache(layers=layers))
