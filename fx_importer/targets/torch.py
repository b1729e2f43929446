"""TORCH: the torch dialect in backend form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_importer import pipelines
from fx_importer.output_types import OutputType
from fx_importer.pipelines import contracts
from fx_importer.targets.target import Collectives, Target

if TYPE_CHECKING:
    from fx_importer.decompositions import DecompositionTable
    from fx_importer.fx_passes.legalization import Dtypes


def _decompositions() -> DecompositionTable:
    from fx_importer.decompositions import TORCH

    return TORCH


def _dtypes() -> Dtypes:
    from fx_importer.fx_passes.legalization import Dtypes

    return Dtypes("the torch dialect")


TORCH = Target(
    OutputType.TORCH,
    _decompositions,
    _dtypes,
    pipelines=(pipelines.TORCH_BACKEND, pipelines.TORCH_CONTRACT),
    contract=contracts.TORCH,
    symbolic_shapes=True,
    collectives=Collectives.KEPT,
)
