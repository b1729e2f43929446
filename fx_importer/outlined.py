"""A module in the torch dialect, lowered: whole, or but for the operators that the output type refuses."""

from __future__ import annotations

from dataclasses import replace

from fx_importer.bindings import ir
from fx_importer.declarations import declared_in
from fx_importer.errors import CrashedError, StageFailed
from fx_importer.investigating import investigator
from fx_importer.lowering import run_pipeline
from fx_importer.manifest import Hole
from fx_importer.options import Options, Unsupported
from fx_importer.pipelines import VERIFIERS, Pipeline
from fx_importer.pipelines.isolated import RunStage, stage_runner
from fx_importer.probing import outline
from fx_importer.trace import Trace

_ROUNDS = 4
"""How often a module is lowered at most: what fails only once its neighbours are gone takes another time."""


def lower_imported(
    module: ir.Module, pipeline: Pipeline, options: Options, trace: Trace, run: RunStage
) -> dict[str, Hole]:
    """Lower ``module`` in place; return what the functions stand for that it declares for operators.

    ``run`` runs stages on ``module`` as it is now.
    """
    holes = declared_in(module.operation)
    if holes:
        pipeline = pipeline.without_passes(*VERIFIERS)
    outlines = options.lowering.unsupported is Unsupported.OUTLINE
    for _ in range(_ROUNDS if outlines else 0):
        # Of an attempt that fails, no report is written.
        attempt = replace(
            trace, reporter=None, investigate=investigator(options), stages=[*trace.stages], imported=None
        )
        try:
            run_pipeline(pipeline, module, attempt, run, options.printing)
        except (StageFailed, CrashedError) as error:
            assert attempt.imported is not None  # or there would have been no stage to fail
            again = attempt.imported.clone()
            found = outline(again, {cause.call for cause in error.causes})
            _become(module, again if found else attempt.imported)
            run = stage_runner(module, options.running)
            if not found:
                break
            holes = declared_in(module.operation)
            pipeline = pipeline.without_passes(*VERIFIERS)
        else:
            trace.stages = attempt.stages
            return holes
    run_pipeline(pipeline, module, trace, run, options.printing)
    return holes


def _become(module: ir.Module, other: ir.Operation) -> None:
    """Let ``module`` hold copies of what ``other``, a module of the same context, holds."""
    for op in list(module.body.operations):
        op.operation.erase()
    for op in other.regions[0].blocks[0].operations:
        module.body.append(op.operation.clone())
