"""What lowerings gave, kept on disk for the next that would give the same."""

from __future__ import annotations

from fx_importer.caching.cache import Place, place_of
from fx_importer.caching.reasons import NotCached
from fx_importer.caching.store import Store, users_store
from fx_importer.caching.withheld import Withheld

__all__ = ["NotCached", "Place", "Store", "Withheld", "place_of", "users_store"]
