"""Finds the operators that a lowering failed for."""

from fx_importer.probing.prober import Prober
from fx_importer.probing.search import causes_in
from fx_importer.probing.suggestions import BACKENDS

__all__ = ["BACKENDS", "Prober", "causes_in"]
