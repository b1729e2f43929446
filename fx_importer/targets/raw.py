"""RAW: the torch dialect as imported, without a pipeline, a contract or a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_importer.output_types import OutputType
from fx_importer.targets.target import Collectives, Target

if TYPE_CHECKING:
    from fx_importer.decompositions import DecompositionTable
    from fx_importer.fx_passes.legalization import Dtypes


def _decompositions() -> DecompositionTable:
    from fx_importer.decompositions import BASE

    return BASE


def _dtypes() -> Dtypes:
    from fx_importer.fx_passes.legalization import Dtypes

    return Dtypes("the torch dialect")


RAW = Target(
    OutputType.RAW,
    _decompositions,
    _dtypes,
    library_operators=False,
    symbolic_shapes=True,
    collectives=Collectives.KEPT,
)
