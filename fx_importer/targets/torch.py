"""TORCH: the torch dialect in backend form."""

from __future__ import annotations

from fx_importer import decompositions, pipelines
from fx_importer.canonicalization import Dtypes
from fx_importer.output_types import OutputType
from fx_importer.pipelines import contracts
from fx_importer.targets.target import Target

TORCH = Target(
    OutputType.TORCH,
    decompositions.TORCH,
    Dtypes("the torch dialect"),
    pipelines=(pipelines.TORCH_BACKEND, pipelines.TORCH_CONTRACT),
    contract=contracts.TORCH,
    backends=("iree",),
    symbolic_shapes=True,
)
