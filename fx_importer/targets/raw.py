"""RAW: the torch dialect as imported, without a pipeline, a contract or a backend."""

from __future__ import annotations

from fx_importer import decompositions
from fx_importer.canonicalization import Dtypes
from fx_importer.output_types import OutputType
from fx_importer.targets.target import Target

RAW = Target(
    OutputType.RAW,
    decompositions.BASE,
    Dtypes("the torch dialect"),
    library_operators=False,
    symbolic_shapes=True,
)
