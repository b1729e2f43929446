"""The decomposition table of the torch dialect in backend form."""

from __future__ import annotations

from fx_importer.decompositions.indexing import nonzero
from fx_importer.decompositions.tables.base import BASE

TORCH = BASE.replacing(nonzero.nonzero, because="the passes to the backend form crash on rank zero")
