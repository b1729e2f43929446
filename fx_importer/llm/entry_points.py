"""The exported programs of a language model's module, for each kind of cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram, export
from torch.utils._pytree import tree_map

from fx_importer.errors import UsageError
from fx_importer.frontend.deferred_code import code_deferred, with_code
from fx_importer.frontend.repeated_modules.traced_once import exported_once
from fx_importer.frontend.torch_patches import tracing
from fx_importer.fx_graph.result_types import with_one_result
from fx_importer.llm.architectures.vision import ImageEncoder, attends_to_prompt, example_image, takes_images
from fx_importer.llm.checkpoints.lora_arguments import AdapterArguments, no_adapter

if TYPE_CHECKING:
    from fx_importer.llm.architectures.sources import EncoderInput

CACHES = ("static", "paged")
MOST_DRAFT = 15
"""The longest draft. With the first token, these are as many rows as are written without a loop."""
Shapes = dict[int, Any] | None


@dataclass(frozen=True)
class StaticCache:
    """A cache with ``context`` slots for each of ``batch`` sequences."""

    batch: int
    context: int
    page_size: None = None
    pages: None = None
    source: EncoderInput | None = None
    """What the encoder reads; None if the model has none."""

    @property
    def prompts(self) -> int:
        """The number of sequences that ``prefill`` and ``score`` take."""
        return self.batch

    def decoder(self, model: Any, **options: Any) -> torch.nn.Module:
        """Return the module to export for a transformers model."""
        from fx_importer.llm.decoder import Decoder
        from fx_importer.llm.source_decoder import SourceDecoder

        if self.source is None:
            return Decoder(model, self.batch, self.context, **options)
        return SourceDecoder(model, self.batch, self.context, source=self.source, **options)

    def place(self, batch: int, chunk: int | None) -> tuple[tuple[Tensor, ...], tuple[Shapes, ...]]:
        """Return example values and dynamic shapes of the arguments that locate the tokens in the cache."""
        if self.source is not None:
            return (torch.tensor(0),), (None,)
        return (torch.tensor(0), torch.zeros(batch, dtype=torch.int64)), (None, None)


@dataclass(frozen=True)
class PagedCache:
    """A pool of ``pages`` pages of ``page_size`` slots, shared by sequences of at most ``context`` positions."""

    batch: int
    context: int
    page_size: int
    pages: int

    prompts = 1
    source = None

    def decoder(self, model: Any, **options: Any) -> torch.nn.Module:
        """Return the module to export for a transformers model."""
        from fx_importer.llm.decoder import PagedDecoder

        return PagedDecoder(model, self.context, self.pages, self.page_size, **options)

    def place(self, batch: int, chunk: int | None) -> tuple[tuple[Tensor, ...], tuple[Shapes, ...]]:
        """Return example values and dynamic shapes of the arguments that locate the tokens in the cache."""
        widest = -(-(self.context + max(chunk or 0, MOST_DRAFT)) // self.page_size)
        width = min(widest, 1 + -(-(chunk or 7) // self.page_size))
        pages = Dim("pages", min=1, max=widest) if widest > 1 else 1
        table = torch.zeros(batch, width, dtype=torch.int64)
        return (table, torch.zeros(batch, dtype=torch.int64)), ({1: pages}, None)


def cache_form(
    cache: str, batch: int, context: int, page_size: int | None, pages: int | None
) -> StaticCache | PagedCache:
    """Return the form of the cache. Raises `UsageError` if it is not supported, or the sizes are invalid for it."""
    if cache not in CACHES:
        raise UsageError(f"the cache {cache!r}: accepted are {', '.join(CACHES)}")
    if cache == "static":
        if page_size is not None or pages is not None:
            raise UsageError("a static cache has no pages: pass cache='paged' with page_size and pages")
        return StaticCache(batch, context)
    size = _PAGE_SIZE if page_size is None else page_size
    if size < 1:
        raise UsageError(f"a page of {size} rows: accepted is 1 or more")
    least, number = 2, 1 + batch * -(-context // size) if pages is None else pages
    if number < least:
        raise UsageError(f"a pool of {number} pages: accepted is {least} or more, of which one is for no sequence")
    return PagedCache(batch, context, size, number)


_PAGE_SIZE = 16


@tracing()
def _exported(decoder: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any) -> ExportedProgram:
    """Export a decoder, whose equal layers are traced once."""
    with code_deferred():
        program = exported_once(decoder, partial(export, decoder, args, kwargs, dynamic_shapes=shapes))
    return with_code(program)


def export_programs(
    form: StaticCache | PagedCache,
    model: Any,
    chunk: int | None,
    *,
    fused: bool,
    draft: int | None = None,
    adapters: AdapterArguments | None = None,
) -> tuple[dict[str, ExportedProgram], int | None]:
    """Export ``prefill``, ``score`` and ``decode`` of a transformers model, and ``verify`` if ``draft`` is set.

    Return the programs and the chunk, which is 1 for a model with states, and the context where a prompt's tokens
    attend to the whole prompt. If the model takes images, ``prefill`` also
    takes ``images``, the embeddings that ``encode_image`` returns. An encoder-decoder has ``encode`` too.

    Args:
        form: the form of the cache.
        model: a transformers model.
        chunk: the number of tokens that prefill and score take; None for any number.
        fused: see `Decoder`.
        draft: the number of tokens that ``verify`` takes after the first one.
        adapters: the model's adapters, whose matrices each of these functions takes as ``adapter``.

    Raises:
        UsageError: for an image model with a paged cache, for ``verify`` with a static cache that has ring buffers or
            states, since rejected tokens, which overwrote older ones, cannot be rolled back, and for a model whose
            code computes something else with our cache.
    """
    from fx_importer.llm.agreement import check_agreement
    from fx_importer.llm.decoder import Decoder

    name = type(model).__name__
    if takes_images(model) and isinstance(form, PagedCache):
        raise UsageError(f"{name} takes images, for which the cache has to be static")
    decoder = form.decoder(model, fused=fused, adapters=adapters).eval()
    has_states = isinstance(decoder, Decoder) and decoder.has_states
    if draft is not None and form.source is not None:
        raise UsageError(f"{name} is an encoder-decoder, whose tokens are not drafted: import it without draft")
    if draft is not None and has_states:
        raise UsageError(f"{name} has layers with states, which cannot take back tokens: import it without draft")
    if draft is not None and isinstance(decoder, Decoder) and decoder.has_rings:
        raise UsageError(
            "a static cache with rings of sliding windows cannot take back tokens: import the model with "
            "cache='paged' to verify drafts"
        )
    if not decoder.is_plain:
        check_agreement(model, form.batch, form.source)
    chunk = 1 if has_states else chunk
    if attends_to_prompt(model):
        if isinstance(decoder, Decoder) and decoder.has_rings:
            raise UsageError(
                f"tokens of a prompt of {name} attend to all of it, and a context of {form.context} positions exceeds "
                "its sliding window: import it with a shorter context"
            )
        chunk = form.context
    length = chunk or min(7, form.context)
    steps: Shapes = None if chunk else {1: Dim("steps", min=1, max=form.context)}
    programs: dict[str, ExportedProgram] = {}
    adapter = {} if adapters is None else {"adapter": no_adapter(adapters.form)}
    rest = [tree_map(lambda _: None, weights) for weights in adapter.values()]
    with torch.no_grad():
        position, shapes = form.place(form.prompts, chunk)
        tokens = torch.zeros(form.prompts, length, dtype=torch.int64)
        arguments, sizes = (tokens, *position, torch.tensor(length - 1)), (steps, *shapes, None)
        # Clone: torch.export treats the same tensor, passed twice, as one argument.
        both = _exported(decoder, (*arguments, tokens.clone()), adapter, (*sizes, steps, *rest))
        if takes_images(model):
            hidden = model.get_input_embeddings().weight
            images = {"images": torch.zeros(*tokens.shape, hidden.shape[1], dtype=hidden.dtype)}
            programs["prefill"] = _exported(decoder, arguments, images | adapter, (*sizes, steps, *rest))
        else:
            programs["prefill"] = with_one_result(both, 0, without=1)
        programs["score"] = with_one_result(both, 1)
        position, shapes = form.place(form.batch, None)
        one = torch.zeros(form.batch, 1, dtype=torch.int64)
        programs["decode"] = _exported(decoder, (one, *position), adapter, (None, *shapes, *rest))
        if takes_images(model):
            programs["encode_image"] = _exported(ImageEncoder(model), (example_image(model),), {}, None)
        if form.source is not None:
            programs["encode"] = _encoder(decoder, form, is_dynamic=chunk is None)
        if draft is not None:
            several = torch.zeros(form.batch, draft + 1, dtype=torch.int64)
            position, shapes = form.place(form.batch, draft + 1)
            programs["verify"] = _exported(decoder, (several, *position), adapter, (None, *shapes, *rest))
    return programs, chunk


def _encoder(decoder: Any, form: StaticCache | PagedCache, *, is_dynamic: bool) -> ExportedProgram:
    """Export ``encode``, of tokens of any number or, unless ``is_dynamic``, as many as the source has positions."""
    from fx_importer.llm.source_decoder import SourceEncoder

    source = form.source
    assert source is not None
    dtype = decoder.source_dtype
    if source.positions is None:
        return _exported(SourceEncoder(decoder), (source.example(form.batch, dtype),), {}, None)
    number = min(7, source.positions) if is_dynamic else None
    size = Dim("source", min=1, max=source.positions) if is_dynamic and source.positions > 1 else None
    tokens, lengths = source.example(form.batch, dtype, number), torch.ones(form.batch, dtype=torch.int64)
    return _exported(SourceEncoder(decoder), (tokens, lengths), {}, ({1: size} if size else None, None))
