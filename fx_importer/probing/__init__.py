"""Finds the operators that a lowering failed for."""

from fx_importer.probing.outlining import outline
from fx_importer.probing.prober import Prober
from fx_importer.probing.search import causes_in
from fx_importer.probing.store import Store
from fx_importer.probing.suggestions import BACKENDS
from fx_importer.probing.whole import expected

__all__ = ["BACKENDS", "Prober", "Store", "causes_in", "expected", "outline"]
