"""The decomposition table of the torch dialect in backend form."""

from __future__ import annotations

from fx_importer.decompositions.tables.base import BASE

TORCH = BASE
