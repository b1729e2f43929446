"""The record of TOSA's reference model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_importer.engines.engine import BackendOptions, Engine
from fx_importer.output_types import OutputType

if TYPE_CHECKING:
    from fx_importer.calls.backend import Backend
    from fx_importer.pipelines import Pipeline


def _pipeline(output_type: OutputType) -> Pipeline:
    from fx_importer.engines.engine_pipeline import INLINE
    from fx_importer.pipelines import Pipeline

    return Pipeline(TOSA_REFERENCE_ENGINE.name, (INLINE,))


def _create(_: BackendOptions) -> Backend:
    from fx_importer.engines.tosa_reference.tosa_reference_backend import TosaReferenceBackend

    return TosaReferenceBackend()


TOSA_REFERENCE_ENGINE = Engine(
    name="tosa_reference",
    create=_create,
    accepts=(OutputType.TOSA,),
    default_for=(OutputType.TOSA,),
    pipeline=_pipeline,
    extra="tosa",
    packages=("tosa_reference_model",),
    isolated=True,
)
"""Arm's reference model of TOSA, an interpreter."""
