"""The decompositions for TOSA."""

from __future__ import annotations

from fx_importer.decompositions.base import BASE

TOSA = BASE
