"""Targets of the output types, one per file. User-defined output types derive their targets from these."""

from __future__ import annotations

import functools

from fx_importer.engines import default_engine
from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline
from fx_importer.targets.linalg import LINALG_ON_TENSORS
from fx_importer.targets.raw import RAW
from fx_importer.targets.stablehlo import STABLEHLO
from fx_importer.targets.target import Collectives, Target
from fx_importer.targets.torch import TORCH
from fx_importer.targets.tosa import TOSA
from fx_importer.targets.user_defined import user_target

__all__ = ["EXECUTABLE", "TARGETS", "Collectives", "Target", "pipeline_for", "target_for"]

TARGETS = {target.output_type: target for target in (RAW, TORCH, LINALG_ON_TENSORS, TOSA, STABLEHLO)}

EXECUTABLE = tuple(output_type for output_type in TARGETS if default_engine(output_type))
"""Built-in output types with a default engine: `explain` tries these, and operators can fall back to them."""


@functools.cache
def target_for(output_type: OutputType) -> Target:
    """Return the target of ``output_type``. A user-defined one derives from the target of its base."""
    if output_type.base is None:
        return TARGETS[output_type]
    return user_target(output_type, target_for(output_type.base))


def pipeline_for(output_type: OutputType, options: LoweringOptions) -> Pipeline:
    """Return the pipeline from an imported module to ``output_type``. See `Target.pipeline`."""
    return target_for(output_type).pipeline(options)
