"""What a runtime needs besides the manifest: ``llm.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fx_importer import UsageError

SETTINGS = "llm.json"
MOST = 256
"""The most tokens of a prompt in one call, which bounds the memory of the scores of attention."""


@dataclass(frozen=True)
class AdapterForm:
    """The adapters that functions take as arguments: A [rank, K] and B [N, rank] of each layer."""

    rank: int
    layers: Mapping[str, tuple[int, int]]
    """K and N, by the path of a linear layer."""


@dataclass(frozen=True)
class Settings:
    """What a runtime needs besides the manifest; the contents of ``llm.json``."""

    batch: int
    context: int
    chunk: int | None
    """The number of tokens that each call of ``prefill`` and ``score`` takes; None if any number."""
    weights: tuple[str, ...]
    """Files with the weights, or folders of such; relative to the file, or absolute. The first takes precedence."""
    stop_tokens: tuple[int, ...]
    """The tokens that end a sequence."""
    page_size: int | None = None
    """The number of rows of a page, if the cache is one in pages."""
    pages: int | None = None
    """The number of pages of each layer's pool, the first of which no sequence has."""
    draft: int | None = None
    """The number of tokens that ``verify`` takes behind the first; None if there is no such function."""
    image_token: int | None = None
    """The token in whose place an image's embeddings are; None if the model takes no images."""
    adapter: AdapterForm | None = None
    """The adapters that functions take; None if they take none."""

    @property
    def widest_table(self) -> int:
        """The number of pages of the longest sequence, and a chunk or draft behind it."""
        return -(-(self.context + max(self.chunk or 0, 1 + (self.draft or 0))) // (self.page_size or 1))

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """Read ``llm.json``. Raises `UsageError` if there is none in ``folder``."""
        path = folder / SETTINGS
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            form = found.get("adapter")
            found["adapter"] = None if form is None else AdapterForm(**form)
            settings = cls(**found | {name: tuple(found[name]) for name in ("stop_tokens", "weights")})
            sizes = [
                each or 1
                for each in (settings.chunk, settings.page_size, settings.pages, settings.draft, settings.image_token)
            ]
            numbers = (settings.batch, settings.context, *sizes, *settings.stop_tokens)
            if {*map(type, numbers)} != {int} or {*map(type, settings.weights)} != {str}:
                raise ValueError("an entry is of another type")
            return settings
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"'{folder}' is no folder that `fx-importer llm import` wrote: {type(error).__name__}: {error}"
            ) from None
