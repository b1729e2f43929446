"""How the stages of a pipeline run on a module: timed, printed, dumped, and reported when they fail."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence

from fx_importer.diagnostics.reports import Dumps, Reporter
from fx_importer.diagnostics.trace import Investigator, Trace
from fx_importer.mlir.bindings import ir, load_dialects
from fx_importer.mlir.module_contents import replace_contents
from fx_importer.options import Options, PrintOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline, Stage, run_stage
from fx_importer.pipelines.isolated_runner import RunStage

SILENT = PrintOptions()


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
