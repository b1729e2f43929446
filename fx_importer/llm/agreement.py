"""Check that a model computes the same with our cache as without a cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fx_importer.errors import UsageError, first_line
from fx_importer.llm.decoder import Decoder
from fx_importer.llm.source_lines import definition, raised_at

if TYPE_CHECKING:
    from fx_importer.llm.architectures.sources import EncoderInput

_CONTEXT, _LONG, _SHORT, _DECODED = 12, 5, 3, 2
_CHUNK = 4
_TOLERANCE = 0.02
"""The largest difference of logits relative to the largest logit, in float32. Wrong positions or states exceed it."""
_HALF_TOLERANCE = 0.2


def check_agreement(model: Any, batch: int, source: EncoderInput | None = None) -> None:
    """Compare the logits of ``model`` with a cache of ours and without a cache, in eager PyTorch.

    Prompts of two lengths, or one if ``batch`` is 1, are followed by decode steps in a cache that is longer than the
    sequence. With an encoder, which reads ``source``, the sources have two lengths instead. This reads all weights.

    Raises:
        UsageError: if the model fails with the cache, or logits differ.
    """
    rows = min(batch, 2)
    lengths = [_LONG, _SHORT][:rows]
    vocabulary = model.get_input_embeddings().weight.shape[0]
    tokens = torch.arange(1, 1 + rows * (_LONG + _DECODED)).reshape(rows, -1) * 7 % vocabulary
    padding = torch.tensor([_LONG - length for length in lengths])
    name = type(model).__name__
    try:
        with torch.no_grad():
            if source is None:
                cached = _cached_logits(Decoder(model, rows, _CONTEXT).eval(), tokens, padding)
                expected = torch.stack([_logits(model, row[pad:]) for row, pad in zip(tokens, padding, strict=True)])
            else:
                cached, expected = _logits_of_sources(model, source, tokens, lengths)
    except UsageError:
        raise
    except Exception as error:  # of transformers, of any type
        raise UsageError(
            f"{name} fails with a cache of {rows} sequences ({raised_at(error, model)}): "
            f"{first_line(error).rstrip('.')}. Accepted are models whose code runs with transformers' static cache"
            f"{_advice(model, rows, source)}"
        ) from error
    tolerance = _TOLERANCE if cached.dtype == torch.float32 else _HALF_TOLERANCE
    difference = float((cached.float() - expected).abs().max() / expected.abs().max())
    if not difference <= tolerance:
        raise UsageError(
            f"{name} ({definition(type(model))}) computes other logits with a cache of {rows} sequences than without "
            f"one: they differ by {difference:.0%} of the largest. Accepted are models whose code runs with "
            f"transformers' static cache{_advice(model, rows, source)}"
        )


def _logits(model: Any, tokens: Tensor) -> Tensor:
    """Return the logits after the last of ``tokens`` without a cache, float32."""
    return model(input_ids=tokens[None], use_cache=False).logits[0, -1].float()


def _advice(model: Any, rows: int, source: EncoderInput | None) -> str:
    """Return advice to import the model for single sequences, if it agrees then."""
    try:
        if rows > 1:
            check_agreement(model, 1, source)
            return ", and this one for single sequences: import it with batch=1"
    except UsageError:
        pass
    return ""


def _logits_of_sources(model: Any, source: EncoderInput, tokens: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Return the logits after the last of ``tokens`` [B, n] with and without our cache, for sources of ``lengths``."""
    from fx_importer.llm.source_decoder import SourceDecoder, SourceEncoder

    if source.features is not None:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(len(tokens), *source.features, generator=generator, dtype=torch.float32).to(model.dtype)
        sources, arguments = list(inputs), (inputs,)
    else:
        longest = min(_LONG, source.positions or 1)
        source = replace(source, positions=min(_LONG + 1, source.positions or 1))
        numbers = [min(length, longest) for length in lengths]
        inputs = tokens[:, :longest].flip(1)
        sources = [row[:number] for row, number in zip(inputs, numbers, strict=True)]
        arguments = (inputs, torch.tensor(numbers))
    expected = [
        model(**{source.argument: one[None], "decoder_input_ids": row[None]}, use_cache=False).logits[0, -1].float()
        for one, row in zip(sources, tokens, strict=True)
    ]
    decoder = SourceDecoder(model, len(tokens), _CONTEXT, source=source).eval()
    SourceEncoder(decoder).eval()(*arguments)
    return _cached_logits(decoder, tokens), torch.stack(expected)


def _cached_logits(decoder: Decoder, tokens: Tensor, *padding: Tensor) -> Tensor:
    """Return the logits after the last of ``tokens``, [B, vocabulary]."""
    chunk = 1 if decoder.has_states else _CHUNK
    logits = torch.empty(0)
    for start in range(0, _LONG, chunk):
        part = tokens[:, start : min(start + chunk, _LONG)]
        filled = torch.nn.functional.pad(part, (0, chunk - part.shape[1]))
        logits = decoder(filled, torch.tensor(start), *padding, torch.tensor(part.shape[1] - 1))
    for position in range(_LONG, tokens.shape[1]):
        logits = decoder(tokens[:, position : position + 1], torch.tensor(position), *padding)
    assert isinstance(logits, Tensor)
    return logits
