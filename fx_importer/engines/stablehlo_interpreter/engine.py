"""The record of StableHLO's interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_importer.engines.engine import BackendOptions, Engine
from fx_importer.output_types import OutputType

if TYPE_CHECKING:
    from fx_importer.calls.backend import Backend


def _create(_: BackendOptions) -> Backend:
    from fx_importer.engines.stablehlo_interpreter.stablehlo_backend import StablehloBackend

    return StablehloBackend()


STABLEHLO_INTERPRETER_ENGINE = Engine(
    name="stablehlo",
    create=_create,
    accepts=(OutputType.STABLEHLO,),
    default_for=(OutputType.STABLEHLO,),
    isolated=True,
)
"""The interpreter of StableHLO in the torch-mlir wheel."""
