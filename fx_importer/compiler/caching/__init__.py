"""On-disk cache of the results of lowerings."""

from __future__ import annotations

from fx_importer.compiler.caching.cache_entry import CacheEntry, place_of
from fx_importer.compiler.caching.cached_weights import ElidedWeights

__all__ = ["CacheEntry", "ElidedWeights", "place_of"]
