"""Pass pipelines as frozen values: passes, stages, the pipeline of each output type, and the runner of a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fx_importer.errors import UsageError
from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines.contracts import CONTRACT, contract
from fx_importer.pipelines.linalg import linalg as LINALG
from fx_importer.pipelines.llvm import LLVM
from fx_importer.pipelines.pipeline import Change, Insertable, Pipeline, changed
from fx_importer.pipelines.pipeline_parser import parse_steps
from fx_importer.pipelines.runner import run_stage, run_text
from fx_importer.pipelines.stablehlo import stablehlo as STABLEHLO
from fx_importer.pipelines.stage import Nested, Pass, RewriteStep, Stage, Step
from fx_importer.pipelines.torch_backend import torch_backend as TORCH_BACKEND
from fx_importer.pipelines.tosa import tosa as TOSA
from fx_importer.rewrites import REWRITES

__all__ = [
    "LINALG",
    "LLVM",
    "PIPELINES",
    "REWRITES",
    "STABLEHLO",
    "TORCH_BACKEND",
    "TOSA",
    "VERIFIERS",
    "Change",
    "Insertable",
    "Nested",
    "Pass",
    "Pipeline",
    "RewriteStep",
    "Stage",
    "Step",
    "parse_steps",
    "pipeline_for",
    "pipeline_from_torch",
    "run_stage",
    "run_text",
]

_FROM_TORCH = {
    OutputType.LINALG_ON_TENSORS: LINALG,
    OutputType.TOSA: TOSA,
    OutputType.STABLEHLO: STABLEHLO,
}


def pipeline_for(output_type: OutputType, options: LoweringOptions) -> Pipeline:
    """Return the pipeline from an imported module to ``output_type``; that of RAW has no stages.

    Raises:
        UsageError: if a backend-legal op does not exist, or ``options.pipeline`` does not return a pipeline.
    """
    return changed(_defined(output_type, options), options.pipeline)


def _defined(output_type: OutputType, options: LoweringOptions) -> Pipeline:
    """Return the pipeline that ``output_type`` defines; one of a user ends with the contract of the type."""
    if output_type is OutputType.RAW:
        return Pipeline(output_type.value, ())
    if output_type.base is None:
        return Pipeline(output_type.value, (*TORCH_BACKEND(options).stages, *_from_torch(output_type, options)))
    base = replace(_defined(output_type.base, options), name=output_type.value)
    if output_type.allows:
        checked = contract(output_type, options.contract)
        others = base.without_stage(CONTRACT) if base.has(CONTRACT) else base
        base = replace(others, stages=(*others.stages, checked)).without_passes(*VERIFIERS)
    try:
        made = changed(base, output_type.pipeline)
    except UsageError as error:
        raise UsageError(f"output type '{output_type.value}' ({output_type.where}): {error}") from error
    promise = [stage for stage in base.stages if stage.name == CONTRACT and not made.has(CONTRACT)]
    return Pipeline(output_type.value, (*made.stages, *promise))


VERIFIERS = tuple(f"torch-verify-{kind}-backend-contract" for kind in ("linalg-on-tensors", "tosa", "stablehlo"))
"""Verification passes of torch-mlir, which reject calls. The contracts of this package allow them."""


def pipeline_from_torch(output_type: OutputType, options: LoweringOptions) -> Pipeline:
    """Return the pipeline from the torch backend form to ``output_type``; for the torch dialect, only its contract.

    It is `pipeline_for` without the stage that makes that form, and raises the same exceptions.
    """
    pipeline = pipeline_for(output_type, options)
    made = TORCH_BACKEND(options).stages[0].name
    return pipeline.without_stage(made) if pipeline.has(made) else pipeline


def _from_torch(output_type: OutputType, options: LoweringOptions) -> tuple[Stage, ...]:
    if family := _FROM_TORCH.get(output_type):
        return family(options).stages
    return (contract(output_type, options.contract),)


PIPELINES: Mapping[str, Pipeline] = {
    pipeline.name: pipeline
    for pipeline in (*(family(LoweringOptions()) for family in (TORCH_BACKEND, LINALG, TOSA, STABLEHLO)), LLVM)
}
"""Every pipeline by name, with default options. linalg-on-tensors, tosa and stablehlo start where torch-backend ends;
llvm starts where linalg-on-tensors ends."""
