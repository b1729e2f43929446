"""The runtime settings of an imported language model, stored in ``llm.json`` next to the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fx_importer import UsageError
from fx_importer.json_text import parse_json, read_regular
from fx_importer.llm.checkpoints.weight_stamps import Stamp

SETTINGS = "llm.json"
_MAX_NUMBER = 2**31
MOST = 256
"""The most prompt tokens in one call, which bounds the memory of attention scores."""


@dataclass(frozen=True)
class AdapterForm:
    """The adapter arguments of the functions: A [rank, K] and B [N, rank] of each layer."""

    rank: int
    layers: Mapping[str, tuple[int, int]]
    """K and N of each linear layer, keyed by its path."""


@dataclass(frozen=True)
class SourceForm:
    """The input of the encoder of an encoder-decoder, and how its decoder starts."""

    positions: int | None
    """The most tokens of a source; None if the encoder reads features."""
    is_padded: bool
    """Whether each call of ``encode`` takes as many tokens as ``positions``."""
    pad_token: int
    start: tuple[int, ...]
    """The tokens that the decoder starts with; none if each call passes them."""
    forced: int | None = None
    """The first token that every sequence generates; None if any can be the first."""
    forced_last: int | None = None
    """The token that ends sequences of the most new tokens; None if any can be the last."""
    suppressed: tuple[int, ...] = ()
    """Tokens that are never generated."""
    suppressed_first: tuple[int, ...] = ()
    """Tokens that are not generated first."""


@dataclass(frozen=True)
class Settings:
    """The contents of ``llm.json``: the settings that a runtime needs in addition to the manifest."""

    batch: int
    context: int
    chunk: int | None
    """The number of tokens that each call of ``prefill`` and ``score`` takes; None for any number."""
    weights: tuple[str, ...]
    """Weight files, or folders of them; absolute, or relative to ``llm.json``'s folder. The first takes precedence."""
    stop_tokens: tuple[int, ...]
    """The tokens that end a sequence."""
    page_size: int | None = None
    """The number of token slots per page; None if the cache is not paged."""
    pages: int | None = None
    """The number of pages in each layer's pool. The first one is scratch and belongs to no sequence."""
    draft: int | None = None
    """The number of tokens that ``verify`` takes after the first; None if the module has no ``verify``."""
    image_token: int | None = None
    """The token that image embeddings replace; None if the model takes no images."""
    adapter: AdapterForm | None = None
    """The adapter arguments of the functions; None if they take no adapter."""
    source: SourceForm | None = None
    """What the encoder reads; None if the model has none."""
    files: Mapping[str, Stamp] | None = None
    """The files of the weights as they were at the import, by path; None in folders of older versions."""

    @property
    def widest_table(self) -> int:
        """The number of pages for the longest sequence, followed by a chunk or draft."""
        return -(-(self.context + max(self.chunk or 0, 1 + (self.draft or 0))) // (self.page_size or 1))

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """Read ``llm.json``. Raises `UsageError` if there is none in ``folder``."""
        path = folder / SETTINGS
        try:
            fields = parse_json(read_regular(path))
            form = fields.get("adapter")
            fields["adapter"] = None if form is None else AdapterForm(**form)
            source = fields.get("source")
            fields["source"] = None if source is None else _source_form(source)
            stamps = fields.get("files")
            fields["files"] = None if stamps is None else {name: Stamp(**stamp) for name, stamp in stamps.items()}
            settings = cls(**fields | {name: tuple(fields[name]) for name in ("stop_tokens", "weights")})
            sizes = [
                number or 1
                for number in (settings.chunk, settings.page_size, settings.pages, settings.draft, settings.image_token)
            ]
            numbers = (settings.batch, settings.context, *sizes, *settings.stop_tokens)
            if {*map(type, numbers)} != {int} or {*map(type, settings.weights)} != {str} or not settings.weights:
                raise ValueError("an entry is of another type")
            if min(settings.batch, settings.context, *sizes) < 0 or max(numbers) > _MAX_NUMBER:
                raise ValueError("a number is out of range")
            _check_records(settings)
            return settings
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = (
                f"it holds no '{Path(error.filename).name}'" if isinstance(error, FileNotFoundError) else repr(error)
            )
            raise UsageError(f"'{folder}' is not a folder that `fx-importer llm import` wrote: {reason}") from None


def _source_form(entries: Mapping[str, Any]) -> SourceForm:
    """Return the form of a source. Raises ValueError if a field is of another type, or a number is out of range."""
    lists = ("start", "suppressed", "suppressed_first")
    form = SourceForm(**{**entries, **{name: tuple(entries[name]) for name in lists}})
    optional = [number for number in (form.positions, form.forced, form.forced_last) if number is not None]
    numbers = (*optional, form.pad_token, *form.start, *form.suppressed, *form.suppressed_first)
    if {*map(type, numbers)} != {int} or type(form.is_padded) is not bool:
        raise ValueError("the form of sources is of another type")
    if min(numbers) < 0 or max(numbers) > _MAX_NUMBER or form.positions == 0:
        raise ValueError("a number is out of range")
    return form


def _check_records(settings: Settings) -> None:
    """Raise ValueError for a form of adapters or a stamp whose fields are of another type."""
    for stamp in (settings.files or {}).values():
        if (type(stamp.size), type(stamp.modified), type(stamp.sha256)) != (int, int, str):
            raise ValueError("the stamp of a file is of another type")
    if settings.adapter is not None:
        shapes = [number for shape in settings.adapter.layers.values() for number in shape]
        if {type(number) for number in (settings.adapter.rank, *shapes)} != {int}:
            raise ValueError("the form of adapters is of another type")
