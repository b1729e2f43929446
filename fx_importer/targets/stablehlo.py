"""STABLEHLO: the StableHLO dialect, which XLA and IREE compile."""

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
    from fx_importer.decompositions import STABLEHLO

    return STABLEHLO


def _dtypes() -> Dtypes:
    import torch

    from fx_importer.fx_graph.operators import aten
    from fx_importer.fx_passes.legalization import Dtypes

    return Dtypes(
        "StableHLO",
        lacks=frozenset((torch.complex32,)),
        moves=frozenset((torch.complex32, torch.complex64, torch.complex128)),
        computes=frozenset(
            (aten.mm.default, aten.bmm.default, aten.neg.default, aten.complex.default, aten.view_as_real.default)
        ),
    )


STABLEHLO = Target(
    OutputType.STABLEHLO,
    _decompositions,
    _dtypes,
    pipelines=(pipelines.TORCH_BACKEND, pipelines.STABLEHLO),
    contract=contracts.STABLEHLO,
    folds_constants=True,
    position_operators=0,
    memory=False,
    scalars=False,
    assertions=False,
    portable_artifacts=True,
    data_dependent_sizes=False,
    specializes_sizes=True,
    collectives=Collectives.LOWERED,
)
