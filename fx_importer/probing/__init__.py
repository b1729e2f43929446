"""Search for the unsupported operators of a failed lowering, each lowered alone."""

from fx_importer.probing.outline_operators import outline
from fx_importer.probing.prober import Prober, ProbeStore, causes_in
from fx_importer.probing.whole_program import expected

__all__ = ["ProbeStore", "Prober", "causes_in", "expected", "outline"]
