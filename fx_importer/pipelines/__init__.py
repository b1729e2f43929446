"""Pass pipelines as values: what they are made of, which output type takes which, and how a stage is run."""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines.linalg import linalg as LINALG
from fx_importer.pipelines.pipeline import Nested, Pass, Pipeline, Stage
from fx_importer.pipelines.runner import run_stage, run_text
from fx_importer.pipelines.stablehlo import stablehlo as STABLEHLO
from fx_importer.pipelines.torch_backend import torch_backend as TORCH_BACKEND
from fx_importer.pipelines.tosa import tosa as TOSA

__all__ = [
    "LINALG",
    "PIPELINES",
    "STABLEHLO",
    "TORCH_BACKEND",
    "TOSA",
    "Nested",
    "Pass",
    "Pipeline",
    "Stage",
    "pipeline_for",
    "run_stage",
    "run_text",
]

_AFTER_TORCH = {
    OutputType.LINALG_ON_TENSORS: LINALG,
    OutputType.TOSA: TOSA,
    OutputType.STABLEHLO: STABLEHLO,
}


def pipeline_for(output_type: OutputType, options: LoweringOptions) -> Pipeline:
    """Return what takes an imported module to ``output_type``: no stage at all for RAW."""
    if output_type is OutputType.RAW:
        return Pipeline(output_type.value, ())
    stages = TORCH_BACKEND(options).stages
    if after := _AFTER_TORCH.get(output_type):
        stages += after(options).stages
    return Pipeline(output_type.value, stages)


PIPELINES: Mapping[str, Pipeline] = {
    pipeline.name: pipeline
    for pipeline in (family(LoweringOptions()) for family in (TORCH_BACKEND, LINALG, TOSA, STABLEHLO))
}
"""Every pipeline by name, each from where the one before it (torch-backend) ends, with the options' defaults."""
