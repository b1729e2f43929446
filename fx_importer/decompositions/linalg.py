"""The decompositions for linalg on tensors."""

from __future__ import annotations

from fx_importer.decompositions.base import BASE

LINALG = BASE
