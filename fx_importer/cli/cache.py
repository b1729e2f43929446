"""``fx-importer cache``."""

from __future__ import annotations

from fx_importer.caching import store_at


def show_cache(clear: bool) -> None:
    """Print how much is kept, and where; or remove it.

    Raises:
        UsageError: if it cannot be removed, or the environment says of the cache what cannot be.
    """
    store = store_at()
    if clear:
        print(f"{store.directory}: removed {store.clear()} lowered programs")
        return
    entries = store.entries()
    size = sum(each.st_size for _, each in entries)
    print(f"{store.directory}: {len(entries)} lowered programs, {size:,} of at most {store.limit:,} bytes")
