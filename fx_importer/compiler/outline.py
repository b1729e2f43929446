"""A module in the torch dialect, lowered: whole, or but for the operators that the output type refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fx_importer.compiler.diagnose import investigator
from fx_importer.compiler.fallback import Fallback
from fx_importer.compiler.stages import run_pipeline
from fx_importer.diagnostics.causes import Cause
from fx_importer.diagnostics.operator_output_types import OperatorOutputType, operators_lowered_to
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import CrashedError, StageFailed
from fx_importer.manifest import OperatorStub
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.declarations import Defined, declared_in
from fx_importer.mlir.module_contents import replace_contents
from fx_importer.options import Options, Unsupported
from fx_importer.pipelines import VERIFIERS, Pipeline
from fx_importer.pipelines.isolated_runner import RunStage, stage_runner
from fx_importer.probing import outline

_ROUNDS = 4
"""How often a module is lowered at most: what fails only once its neighbours are gone takes another time."""


@dataclass(frozen=True)
class Outcome:
    """What a lowering left undone, or did in another way."""

    operator_stubs: Mapping[str, OperatorStub]
    """What the functions stand for that the module declares."""
    operator_output_types: tuple[OperatorOutputType, ...] = ()
    """Which operators went where, with a fallback."""

    @property
    def fallback(self) -> tuple[str, ...]:
        """The output types of the fallback that took something."""
        return tuple(dict.fromkeys(each.output_type.value for each in self.operator_output_types if each.reason))


def lower_imported(
    module: ir.Module,
    defined: Mapping[str, Defined],
    pipeline: Pipeline,
    options: Options,
    trace: Trace,
    run: RunStage,
) -> Outcome:
    """Lower ``module`` in place: where it fails, again, with what was refused left to the fallback, or to PyTorch.

    ``defined`` are functions that it calls, and that go to the fallback from the beginning. ``run`` runs stages on
    ``module`` as it is now.
    """
    fallback, outlines = Fallback(options), options.lowering.unsupported is Unsupported.OUTLINE
    fallback.take_defined(defined, module.operation)
    if options.lowering.lowerings or options.importing.outline_layers or declared_in(module.operation):
        pipeline = pipeline.without_passes(*VERIFIERS)  # which refuse calls, and what rules emit is ours to judge
    done = False
    for _ in range(_ROUNDS if outlines or options.lowering.fallback else 0):
        # Of an attempt that fails, no report is written.
        attempt = replace(
            trace, reporter=None, investigate=investigator(options), stages=[*trace.stages], imported=None
        )
        try:
            run_pipeline(pipeline, module, attempt, run, options.printing)
        except (StageFailed, CrashedError) as error:
            assert attempt.imported is not None  # or there would have been no stage to fail
            again = _outlined(attempt.imported, error.causes, fallback, outlines)
            replace_contents(module, again or attempt.imported.clone())
            run = stage_runner(module, options.running)
            if again is None:
                break
            pipeline = pipeline.without_passes(*VERIFIERS)
        else:
            trace.stages, trace.imported, done = attempt.stages, attempt.imported, True
            break
    if not done:
        run_pipeline(pipeline, module, trace, run, options.printing)
    stubs = declared_in(module.operation if trace.imported is None else trace.imported)
    stubs = {name: stub for name, stub in stubs.items() if name not in fallback.modules}
    if not options.lowering.fallback:
        return Outcome(stubs)
    with trace.stage("fallback", module):
        fallback.link(module)
    taken = operators_lowered_to(options.output_type, trace.imported) if trace.imported else []
    return Outcome(stubs, (*fallback.operator_output_types, *taken))


def _outlined(
    imported: ir.Operation, causes: Sequence[Cause], fallback: Fallback, outlines: bool
) -> ir.Operation | None:
    """Return a copy of ``imported`` where functions stand for what is refused; None if they can for nothing.

    Unless all that can be is outlined, they stand for what the fallback takes.
    """
    by_call = {cause.call: cause for cause in causes}
    again = imported.clone()
    taken = fallback.taking(outline(again, by_call.keys()), by_call)
    if not outlines and taken.left:
        again = imported.clone()
        taken = fallback.taking(outline(again, by_call.keys() - taken.left), by_call)
    fallback.take(taken)
    return again if taken.modules or (outlines and taken.left) else None
