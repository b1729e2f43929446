"""TORCH: the torch dialect in backend form."""

from __future__ import annotations

from fx_importer import decompositions
from fx_importer.canonicalization import Dtypes
from fx_importer.output_types import OutputType
from fx_importer.targets.target import Target

TORCH = Target(OutputType.TORCH, decompositions.TORCH, Dtypes("the torch dialect"), symbolic_shapes=True)
