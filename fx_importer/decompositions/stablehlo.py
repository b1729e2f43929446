"""The decompositions for StableHLO."""

from __future__ import annotations

from fx_importer.decompositions.base import BASE

STABLEHLO = BASE
