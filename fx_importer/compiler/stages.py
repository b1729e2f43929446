"""Running stages on a module, and lowering one that is already there, as users of torch-mlir's `compiler_utils` do."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from fx_importer import pipelines
from fx_importer.diagnostics.reports import Dumps, Reporter
from fx_importer.diagnostics.trace import Investigator, Trace
from fx_importer.mlir.bindings import ir, load_dialects
from fx_importer.mlir.module_contents import replace_contents
from fx_importer.options import Contract, LoweringOptions, Options, PrintOptions, RunOptions, TosaTarget
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, Stage, parse_steps, pipeline_from_torch, run_stage
from fx_importer.pipelines.isolated_runner import RunStage, stage_runner

IN_THIS_PROCESS = RunOptions()
SILENT = PrintOptions()


class HasFinitePolicy(Protocol):
    """Anything that says whether a lowering may emit infinities."""

    @property
    def allow_non_finites(self) -> bool: ...


@dataclass(frozen=True)
class BackendLoweringOptions:
    """For `lower_mlir_module`, which takes torch-mlir's class of this name too."""

    allow_non_finites: bool = True


def new_trace(options: Options, planned: Sequence[str], investigate: Investigator | None = None) -> Trace:
    """Return a record that reports failures, and writes dumps where ``options`` ask for them."""
    dumps = None if options.running.dump_ir is None else Dumps(options.running)
    return Trace(Reporter(options), investigate, dumps, tuple(planned))


def admit(output_type: OutputType, context: ir.Context) -> None:
    """Let ``context`` hold operations that it does not know, if ``output_type`` may hold some."""
    if output_type.allows:
        load_dialects(context)
        for dialect in {each.partition(".")[0] for each in output_type.allows}:
            try:
                context.get_dialect_descriptor(dialect)
            except ValueError:
                context.allow_unregistered_dialects = True


def run_pipeline(
    pipeline: Pipeline, module: ir.Module, trace: Trace, run: RunStage, printing: PrintOptions = SILENT
) -> None:
    """Run the stages of ``pipeline`` on ``module`` in place; ``run`` is what runs stages on it."""
    first = module.operation.clone()
    trace.imported = trace.imported or first
    for number, stage in enumerate(pipeline.stages):
        again = functools.partial(_after, pipeline.stages[:number], first)
        with trace.stage(stage.name, module, pipeline=str(stage), recreate=again):
            run(stage, print_passes=printing.passes)
        if printing.stages:
            print(f"// ----- after stage '{stage.name}'")
            # Local scope leaves out the resource section, which would spell every weight in hexadecimal.
            print(module.operation.get_asm(large_elements_limit=16, use_local_scope=True))


def _after(stages: Sequence[Stage], first: ir.Operation) -> ir.Operation:
    """Return what ``stages``, which passed, make of ``first``: a copy before each stage would cost every success."""
    module = ir.Module.create(first.location)
    replace_contents(module, first.clone())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were said
        for stage in stages:
            run_stage(stage, module)
    return module.operation


def run_pipeline_with_repro_report(
    module: ir.Module,
    pipeline: str,
    description: str,
    enable_ir_printing: bool = False,
    running: RunOptions = IN_THIS_PROCESS,
) -> None:
    """Run ``pipeline``, in MLIR's syntax, on ``module``, in place. ``description`` names it in errors.

    ``running`` says how: in a process of its own, for one.

    Raises:
        UsageError: if ``pipeline`` is not a pipeline.
        StageFailed: if it fails; the error names a directory that repeats the failure.
        CrashedError: if it ends its own process; likewise.
    """
    stage = Stage(description or "pipeline", "", parse_steps(pipeline))
    trace = new_trace(Options(running=running), [stage.name])
    printing = PrintOptions(passes=enable_ir_printing)
    run_pipeline(Pipeline("", (stage,)), module, trace, stage_runner(module, running), printing)


def pipeline_for(
    output_type: str | OutputType,
    *,
    backend_legal_ops: Sequence[str] = (),
    allow_non_finites: bool = True,
    contract: str | Contract = Contract.ERROR,
    narrow_integers: bool = False,
    tosa_target: str | TosaTarget | None = None,
) -> Pipeline:
    """Return the stages that a lowering to ``output_type`` runs after the import.

    The options are those of `lower`, whose ``pipeline`` may be what is made of this.

    Raises:
        UsageError: for an option that is not one.
    """
    options = LoweringOptions(
        tuple(backend_legal_ops),
        allow_non_finites,
        Contract.get(contract),
        narrow_integers=narrow_integers,
        tosa_target=None if tosa_target is None else TosaTarget.get(tosa_target),
    )
    return pipelines.pipeline_for(OutputType.get(output_type), options)


def lower_mlir_module(
    verbose: bool,
    output_type: str | Enum,
    module: ir.Module,
    backend_options: HasFinitePolicy | LoweringOptions | None = None,
    running: RunOptions = IN_THIS_PROCESS,
) -> ir.Module:
    """Lower ``module``, which is in the torch backend form, to ``output_type``, in place; return it.

    ``verbose`` prints the module as it is then, large constants elided. ``backend_options`` may be all the options of a
    lowering, `LoweringOptions`, with a ``pipeline`` of one's own; ``running`` says how the stages run.

    Raises:
        UsageError: for an output type that is not one.
        StageFailed: if a stage fails; the error names a directory that repeats the failure.
        CrashedError: if a stage ends its own process; likewise.
    """
    options = backend_options or LoweringOptions()
    if not isinstance(options, LoweringOptions):
        options = LoweringOptions(allow_non_finites=options.allow_non_finites)
    kind = OutputType.get(output_type)
    pipeline = pipeline_from_torch(kind, options)
    admit(kind, module.context)
    whole = Options(output_type=kind, lowering=options, running=running)
    trace = new_trace(whole, [stage.name for stage in pipeline.stages])
    run_pipeline(pipeline, module, trace, stage_runner(module, running))
    if verbose:
        print(module.operation.get_asm(use_local_scope=True, large_elements_limit=16))
    return module
