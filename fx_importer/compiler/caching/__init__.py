"""On-disk cache of the results of lowerings."""

from __future__ import annotations

from fx_importer.compiler.caching.cache_entry import Place, place_of
from fx_importer.compiler.caching.cached_weights import ElidedWeights

__all__ = ["ElidedWeights", "Place", "place_of"]
