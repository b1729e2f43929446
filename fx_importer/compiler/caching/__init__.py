"""On-disk cache of the results of lowerings."""

from __future__ import annotations

from fx_importer.compiler.caching.cache_entry import Place, place_of
from fx_importer.compiler.caching.cached_weights import ElidedWeights
from fx_importer.compiler.caching.disk_store import Store, users_store
from fx_importer.compiler.caching.uncacheable import NotCached

__all__ = ["ElidedWeights", "NotCached", "Place", "Store", "place_of", "users_store"]
