"""``fx-importer cache``."""

from __future__ import annotations

from pathlib import Path

from fx_importer.caching.disk_store import users_store
from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.errors import UsageError


def show_cache(clear: bool, json: Path | None = None) -> None:
    """Print the size and location of the cache and write them to ``json``; with ``clear``, clear it.

    Raises:
        UsageError: if it cannot be cleared, or the environment variables for the cache are invalid.
    """
    store = users_store()
    if store.directory.exists() and not store.directory.is_dir():
        raise UsageError(
            f"'{store.directory}' is not a directory: name one in FX_IMPORTER_CACHE_DIR, which need not exist yet"
        )
    with json_output(json) as write:
        removed = store.clear() if clear else 0
        entries = store.entries()
        size = sum(status.st_size for _, status in entries)
        if clear:
            echo(f"{store.directory}: removed {removed} entries")
        else:
            echo(f"{store.directory}: {len(entries)} entries, {size:,} of at most {store.limit:,} bytes")
        figures = {"entries": len(entries), "bytes": size, "limit": store.limit, "removed": removed}
        write(document({"directory": store.directory, **figures}))
