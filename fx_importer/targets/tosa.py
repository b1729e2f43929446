"""TOSA: static tensors only; no scalars, assertions, memory or float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_importer import pipelines
from fx_importer.output_types import OutputType
from fx_importer.pipelines import contracts
from fx_importer.targets.target import Target

if TYPE_CHECKING:
    from fx_importer.decompositions import DecompositionTable
    from fx_importer.fx_passes.legalization import Dtypes


def _decompositions() -> DecompositionTable:
    from fx_importer.decompositions import TOSA

    return TOSA


def _dtypes() -> Dtypes:
    import torch

    from fx_importer.fx_passes.legalization import Dtypes

    return Dtypes(
        "TOSA",
        inside={torch.float64: torch.float32},
        inside_only=frozenset((torch.complex128,)),  # float64 is for a fallback, or fails in the contract
        pairs={torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64},
        sparse=False,
        unsigned=False,
        numbers=torch.float32,
    )


TOSA = Target(
    OutputType.TOSA,
    _decompositions,
    _dtypes,
    pipelines=(pipelines.TORCH_BACKEND, pipelines.TOSA),
    contract=contracts.TOSA,
    memory=False,
    scalars=False,
    assertions=False,
    random=False,
    folds_constants=True,
    folds_casts=True,
    tensors_only=True,
    narrows=True,
    integer_quantized=True,
    dynamic_shapes=False,
    data_dependent_sizes=False,
)
