"""The settings of an imported encoder-decoder: what its encoder reads, and how its decoder starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fx_importer.errors import UsageError
from fx_importer.llm.architectures.sources import has_encoder, source_of
from fx_importer.llm.entry_points import PagedCache, StaticCache
from fx_importer.llm.settings import SourceForm


def with_source(
    form: StaticCache | PagedCache, model: Any, positions: int | None, adapter_rank: int | None
) -> StaticCache | PagedCache:
    """Return ``form`` with what the encoder of ``model`` reads, if it has an encoder.

    Args:
        form: the form of the cache.
        model: a transformers model.
        positions: the most tokens of a source; None for the default.
        adapter_rank: the rank of adapters that are arguments.

    Raises:
        UsageError: if ``positions`` is set without an encoder, or an encoder-decoder is combined with a paged cache or
            adapters, or its encoder is not supported.
    """
    name = type(model).__name__
    if not has_encoder(model.config):
        if positions is not None:
            raise UsageError(
                f"source_context={positions} for {name}, which has no encoder: import it without source_context"
            )
        return form
    if isinstance(form, PagedCache):
        raise UsageError(f"{name} is an encoder-decoder, for which the cache has to be static")
    if adapter_rank is not None:
        raise UsageError(
            f"{name} is an encoder-decoder, which takes no adapters as arguments: merge one at the import, with lora="
        )
    return replace(form, source=source_of(model, positions))


def source_form(model: Any, form: StaticCache | PagedCache, chunk: int | None) -> SourceForm | None:
    """Return how the runtime passes sources and starts sequences; None for a model without an encoder.

    Raises:
        UsageError: if the configuration does not name the first token of the decoder.
    """
    if form.source is None:
        return None
    generation = model.generation_config
    pad = _first(generation.pad_token_id, getattr(model.config, "pad_token_id", None), 0)
    return SourceForm(
        positions=form.source.positions,
        is_padded=chunk is not None,
        pad_token=pad,
        start=_start(model, generation),
        forced=generation.forced_bos_token_id,
        forced_last=generation.forced_eos_token_id,
        suppressed=tuple(generation.suppress_tokens or ()),
        suppressed_first=tuple(generation.begin_suppress_tokens or ()),
    )


def _start(model: Any, generation: Any) -> tuple[int, ...]:
    """Return the tokens that the decoder starts with; none if they depend on a language that the user has to name."""
    if getattr(generation, "is_multilingual", False) and getattr(generation, "lang_to_id", None):
        return ()
    first = _first(generation.decoder_start_token_id, getattr(model.config, "decoder_start_token_id", None))
    first = _first(first, generation.bos_token_id)
    if type(first) is not int:
        raise UsageError(
            f"the first token of the decoder of {type(model).__name__} is {first!r}: accepted is a number, "
            "decoder_start_token_id in generation_config.json or config.json"
        )
    without_times = getattr(generation, "no_timestamps_token_id", None)  # of Whisper
    return (first,) if without_times is None else (first, without_times)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
