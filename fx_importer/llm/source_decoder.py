"""The modules to export for a transformers encoder-decoder, with the decoder's caches as state.

`SourceEncoder` computes what the decoder's layers read of a source, once. `SourceDecoder` reads it in each step.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from fx_importer.llm.architectures.attention import own_attention, uses_interface
from fx_importer.llm.architectures.cache_layers import zeros
from fx_importer.llm.architectures.model_cache import cache_argument
from fx_importer.llm.architectures.sources import CROSS_KEY, CROSS_VALUE, SOURCE_LENGTHS, EncoderInput, both_caches
from fx_importer.llm.checkpoints.lora_arguments import Matrices
from fx_importer.llm.decoder import Decoder


class SourceDecoder(Decoder):
    """Next-token logits of an encoder-decoder: a `Decoder` that also attends to the results of its encoder.

    Keys and values of the source are in the buffers ``cache.0.cross_key``, ``cache.0.cross_value``, …, [B, H, S, D]. If
    the encoder reads tokens, ``cache.source_lengths``, int64 [B], holds their numbers.

    Args:
        model: a transformers encoder-decoder in evaluation mode.
        batch: the number of sequences, B.
        context: the number of positions of the decoder.
        source: the input of the encoder.
        options: see `Decoder`.
    """

    def __init__(self, model: PreTrainedModel, batch: int, context: int, *, source: EncoderInput, **options: Any):
        super().__init__(model, batch, context, source=source, **options)
        self._batch = batch
        if source.positions is not None:
            self.cache.register_buffer(SOURCE_LENGTHS, zeros((batch,), torch.int64))
        encoder = getattr(model.config, "encoder", model.config)
        self._hidden = encoder.hidden_size
        self.source_dtype = model.dtype

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride] - no code calls one for the other
        self,
        tokens: Tensor,
        position: Tensor,
        last: Tensor | None = None,
        targets: Tensor | None = None,
        adapter: Matrices | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Append ``tokens`` to the sequences, and return the same as `Decoder.forward`.

        Args:
            tokens: int64 [B, n]. None is padding at the start, since decoders take positions from the cache's length.
            position: int64 [], the position of the first token.
            last, targets, adapter: see `Decoder.forward`.
        """
        padding = torch.zeros(self._batch, dtype=torch.int64)
        return super().forward(tokens, position, padding, last, targets, adapter=adapter)

    def _arguments(self, inputs: dict[str, Any], mask: Tensor | None, positions: Tensor, cache: Any) -> dict[str, Any]:
        buffers = list(self.cache)
        number = buffers[0].get_buffer(CROSS_KEY).shape[2]
        # Its sizes alone are read: the keys and values are in the cache.
        encoded = torch.zeros(self._batch, number, self._hidden, dtype=self._model.dtype)
        arguments: dict[str, Any] = {
            "encoder_outputs": BaseModelOutput(last_hidden_state=encoded),
            "decoder_input_ids": inputs["input_ids"],
            "decoder_attention_mask": mask,
            self._cache_argument: both_caches(cache, buffers, are_new=False),
        }
        if (lengths := dict(self.cache.named_buffers(recurse=False)).get(SOURCE_LENGTHS)) is not None:
            arguments["attention_mask"] = _source_mask(number, lengths)
        return arguments


class SourceEncoder(torch.nn.Module):
    """Encode the sources of a `SourceDecoder`, and write what its layers read of them.

    Args:
        decoder: the decoder, whose weights and buffers this module shares under their names.
    """

    def __init__(self, decoder: SourceDecoder):
        super().__init__()
        self.cache = torch.nn.ModuleList()
        for buffers in decoder.cache:
            self.cache.append(part := torch.nn.Module())
            for name in (CROSS_KEY, CROSS_VALUE):
                part.register_buffer(name, buffers.get_buffer(name))
        for name, buffer in decoder.cache.named_buffers(recurse=False):
            self.cache.register_buffer(name, buffer)
        for name, child in decoder.named_children():
            if name != "cache":
                self.add_module(name, child)
        self._argument = decoder.source.argument if decoder.source else ""
        self._model: PreTrainedModel
        object.__setattr__(self, "_model", decoder._model)

    def forward(self, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Encode ``source``, and return the encoder's results, [B, S, hidden].

        Args:
            source: tokens, int64 [B, S], padded at the end; or features, floats [B, …].
            lengths: int64 [B], the number of tokens of each source, without padding; None for features.
        """
        model = self._model
        masks: dict[str, Any] = {}
        if lengths is not None:
            self.cache.get_buffer(SOURCE_LENGTHS).copy_(lengths)
            masks["attention_mask"] = _source_mask(source.shape[1], lengths)
        arguments: dict[str, Any] = {
            "decoder_input_ids": torch.zeros(source.shape[0], 1, dtype=torch.int64),
            cache_argument(model): both_caches(DynamicCache(), list(self.cache), are_new=True),
        }
        with nullcontext() if uses_interface(model) else own_attention():
            encoded = model.get_encoder()(**{self._argument: source}, **masks, return_dict=True)
            model(encoder_outputs=encoded, **masks, **arguments, use_cache=True)
        return encoded.last_hidden_state


def _source_mask(number: int, lengths: Tensor) -> Tensor:
    """Return which of ``number`` positions hold tokens of sources of ``lengths`` [B], [B, number]."""
    return torch.arange(number).unsqueeze(0) < lengths.unsqueeze(1)
