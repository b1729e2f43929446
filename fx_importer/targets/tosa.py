"""TOSA: static tensors only; no scalars, assertions, memory or complex128."""

from __future__ import annotations

import torch

from fx_importer import decompositions, pipelines
from fx_importer.canonicalization import Dtypes
from fx_importer.output_types import OutputType
from fx_importer.pipelines import contracts
from fx_importer.targets.target import Target

TOSA = Target(
    OutputType.TOSA,
    decompositions.TOSA,
    Dtypes(
        "TOSA",
        lacks=frozenset((torch.complex128,)),
        pairs={torch.complex32: torch.float16, torch.complex64: torch.float32},
        sparse=False,
        unsigned=False,
    ),
    pipelines=(pipelines.TORCH_BACKEND, pipelines.TOSA),
    contract=contracts.TOSA,
    backends=(
        "tosa_reference",
        "jit",
        "iree",
    ),
    default_backend="tosa_reference",
    memory=False,
    scalars=False,
    assertions=False,
    folds_constants=True,
    tensors_only=True,
    narrows_integers=True,
    dynamic_shapes=False,
)
