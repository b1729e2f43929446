"""Lowering of modules in the torch dialect, compatible with torch-mlir's `compiler_utils`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from fx_importer.compiler.stages import admit, new_trace, run_pipeline
from fx_importer.diagnostics.trace import Trace
from fx_importer.mlir.bindings import ir
from fx_importer.options import Contract, LoweringOptions, Options, PrintOptions, RunOptions, TosaTarget
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, Stage, parse_steps
from fx_importer.pipelines.isolated_runner import stage_runner
from fx_importer.targets import target_for

IN_THIS_PROCESS = RunOptions()


class HasFinitePolicy(Protocol):
    """Protocol of options that define whether a lowering may emit infinities."""

    @property
    def allow_non_finites(self) -> bool: ...


@dataclass(frozen=True)
class BackendLoweringOptions:
    """Options of `lower_mlir_module`, which also accepts torch-mlir's class of this name."""

    allow_non_finites: bool = True


def run_pipeline_with_repro_report(
    module: ir.Module,
    pipeline: str,
    description: str,
    enable_ir_printing: bool = False,
    running: RunOptions = IN_THIS_PROCESS,
    *,
    report: bool = True,
) -> None:
    """Run ``pipeline``, in MLIR's syntax, on ``module``, in place. ``description`` names it in errors.

    ``running`` has the options of execution, such as running in another process. A failure is written to a directory if
    ``report``.

    Raises:
        UsageError: if ``pipeline`` is not a pipeline.
        StageFailed: if it fails; the error names a directory that reproduces the failure.
        CrashedError: if it ends its own process; likewise.
    """
    stage = Stage(description or "pipeline", "", parse_steps(pipeline))
    trace = new_trace(Options(running=running), [stage.name]) if report else Trace()
    printing = PrintOptions(passes=enable_ir_printing)
    run_pipeline(Pipeline("", (stage,)), module, trace, stage_runner(module, running), printing)


def pipeline_for(
    output_type: str | OutputType,
    *,
    backend_legal_ops: Sequence[str] = (),
    allow_non_finites: bool = True,
    contract: str | Contract = Contract.ERROR,
    narrow_integers: bool = False,
    narrow_floats: bool = False,
    tosa_target: str | TosaTarget | None = None,
) -> Pipeline:
    """Return the stages that a lowering to ``output_type`` runs after the import.

    `lower` describes the options; its ``pipeline`` may be derived from the result.

    Raises:
        UsageError: for an invalid option.
    """
    options = LoweringOptions(
        tuple(backend_legal_ops),
        allow_non_finites,
        Contract.get(contract),
        narrow_integers=narrow_integers,
        narrow_floats=narrow_floats,
        tosa_target=None if tosa_target is None else TosaTarget.get(tosa_target),
    )
    return target_for(OutputType.get(output_type)).pipeline(options)


def lower_mlir_module(
    verbose: bool,
    output_type: str | Enum | OutputType,
    module: ir.Module,
    backend_options: HasFinitePolicy | LoweringOptions | None = None,
    running: RunOptions = IN_THIS_PROCESS,
) -> ir.Module:
    """Lower ``module``, which is in the torch backend form, to ``output_type``, in place; return it.

    ``verbose`` prints the result, large constants elided. ``backend_options`` may be full `LoweringOptions` with a
    custom ``pipeline``. ``running`` has the options of execution.

    Raises:
        UsageError: for an unknown output type.
        StageFailed: if a stage fails; the error names a directory that reproduces the failure.
        CrashedError: if a stage ends its own process; likewise.
    """
    options = backend_options or LoweringOptions()
    if not isinstance(options, LoweringOptions):
        options = LoweringOptions(allow_non_finites=options.allow_non_finites)
    kind = OutputType.get(output_type)
    pipeline = target_for(kind).pipeline_from_torch(options)
    admit(kind, module.context)
    whole = Options(output_type=kind, lowering=options, running=running)
    trace = new_trace(whole, [stage.name for stage in pipeline.stages])
    run_pipeline(pipeline, module, trace, stage_runner(module, running))
    if verbose:
        print(module.operation.get_asm(use_local_scope=True, large_elements_limit=16))
    return module
