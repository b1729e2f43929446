"""Compilation of models, with the cache, warnings, and suggestions after a failure, which are tried."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from typing import Any

from torch.export import ExportedProgram

from fx_importer.compiler.advice import MAX_BYTES, Advisor, Change, bytes_of
from fx_importer.compiler.cached_lowering import through_the_cache
from fx_importer.compiler.compilation import Call, Compilation, Exported, Programs
from fx_importer.compiler.diagnose import SEARCH_SECONDS, investigator
from fx_importer.compiler.driver import export_models, in_arithmetic, lower_exported, stages_of
from fx_importer.compiler.quantized_arithmetic import lowered_as_chosen
from fx_importer.compiler.stages import admit, new_trace
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import OTHERWISE, AssumptionWarning, ExportError, QuantizationWarning, RandomNumbersWarning
from fx_importer.frontend.dynamic_dimensions import dimension_names
from fx_importer.frontend.torch_patches import GUARD_LOG, META_LOG, patched, warnings_filtered
from fx_importer.importing import FxImporter
from fx_importer.manifest import Manifest
from fx_importer.options import (
    Capture,
    DecompositionOptions,
    ExportOptions,
    Options,
    PrintOptions,
    Quantized,
    RunOptions,
    Weights,
)
from fx_importer.probing import Prober
from fx_importer.results.lowered import Lowered
from fx_importer.verification.original_model import OriginalModel


def compile_programs(
    calls: Mapping[str, Call],
    importer: FxImporter,
    options: Options,
    *,
    report: bool = True,
    trace: Trace | None = None,
    keep_importer: bool = False,
) -> Lowered:
    """Export models and lower them to functions of one module, or read the result from the cache.

    Args:
        calls: models and their example inputs, by the names of functions.
        importer: the importer, into whose module the programs are imported.
        options: for the whole compilation.
        report: whether failures are diagnosed and written to a report.
        trace: the record to add the stages to, which then controls reports and diagnosis. Nothing is cached then.
        keep_importer: whether the result must be in the module of ``importer``, and not in a fresh one.

    Raises:
        FxImporterError: as `fx_importer.lower` does.
    """
    compilation = Compilation.of(options)
    cached = report and trace is None and options.running.is_cached
    if trace is None:
        names = [stage.name for stage in stages_of(compilation)]
        trace = new_trace(options, names, investigator(compilation)) if report else Trace()
    try:
        exported = export_models(calls, compilation, trace)
    except ExportError as error:
        tries = advisor_for(calls, None, importer, options) if report else None
        raise (tries.advised(error, SEARCH_SECONDS) if tries else error) from error.__cause__
    tries = advisor_for(calls, exported.given, importer, options) if report else None
    if trace.investigate is not None:
        trace.investigate = investigator(exported.compilation, tries)
    run = partial(_lowered, cached=cached, advisor=tries)
    if exported.chosen:
        exported, compiled = lowered_as_chosen(exported, importer, trace, run, report=report, keep=keep_importer)
    else:
        compiled = run(exported, importer, trace, report=report)
    if report and exported.warning:
        warnings.warn(exported.warning, QuantizationWarning, stacklevel=3)
    names = {
        name: dimension_names(f, compiled.exported[name], options.export.dynamic_shapes)
        for name, (f, _, _) in calls.items()
    }
    originals = {name: OriginalModel.of(f) for name, (f, _, _) in calls.items() if not isinstance(f, ExportedProgram)}
    compiled = replace(compiled, manifest=compiled.manifest.with_dimension_names(names), originals=originals)
    if report:
        warn_of_assumptions(compiled.manifest, list(originals), options.export)
    if report and compiled.drawn:
        warnings.warn(
            f"{options.output_type.value} has no random numbers: those of {', '.join(compiled.drawn)} were drawn by "
            "this lowering, and are the same in each call of the module",
            RandomNumbersWarning,
            stacklevel=3,
        )
    return compiled


def _lowered(
    exported: Exported,
    importer: FxImporter,
    trace: Trace,
    *,
    report: bool,
    cached: bool,
    advisor: Advisor | None = None,
    prober: Prober | None = None,
) -> Lowered:
    """Lower exported programs, or read the result from the cache."""
    compilation = exported.compilation
    admit(compilation.options.output_type, importer.module.context)
    if cached:
        return through_the_cache(
            exported, importer, compilation, trace, partial(lower_exported, advisor=advisor), report=report
        )
    return lower_exported(exported, importer, compilation, trace, report=report, advisor=advisor, prober=prober)


def advisor_for(
    calls: Mapping[str, Call], programs: Programs | None, importer: FxImporter, options: Options
) -> Advisor:
    """Return what tries other options after a failure of ``programs``, which are exported anew where necessary."""

    def lower_again(change: Change, options: Options, prober: Prober) -> None:
        compilation, trace = Compilation.of(options), Trace()
        if change.calls is not None or programs is None:
            exported = export_models(change.calls or calls, compilation, trace)
        else:
            exported = in_arithmetic(programs, calls, compilation, lambda remark: None)
        run = partial(_lowered, cached=False, prober=prober)
        if exported.chosen:
            lowered_as_chosen(exported, importer.fresh(), trace, run, report=False, keep=False)
        else:
            run(exported, importer.fresh(), trace, report=False)

    return advisor(calls, options, lower_again)


def recompile(
    options: Options,
    importer: FxImporter,
    f: Any,
    args: Sequence[Any],
    decompositions: DecompositionOptions | None,
    trace: Trace | None = None,
) -> Lowered:
    """Lower ``f`` with the options of another program; no failure is reported, and nothing printed.

    Several programs by name become functions of these names.
    """
    options = replace(
        options,
        export=ExportOptions(quantized=options.export.quantized),
        importing=replace(options.importing, input_names=(), output_names=()),  # another program has others
        printing=PrintOptions(),
        running=replace(options.running, dump_ir=None, cache=False),
        decompositions=decompositions or options.decompositions,
    )
    programs = f if isinstance(f, Mapping) else {options.importing.func_name: f}
    calls = {name: (program, args, {}) for name, program in programs.items()}
    return compile_programs(calls, importer.fresh(), options, report=False, trace=trace)


def warn_of_assumptions(manifest: Manifest, captured: Collection[str], options: ExportOptions) -> None:
    """Warn of the assumptions of the functions ``captured``, one line each, unless ``options`` ask for them.

    Where one does not hold, the model computes something else. If the model raises then, there is no warning.
    Programs that were captured before have the assumptions of their owner.
    """
    if options.capture is not Capture.AUTO:
        return
    several = len(manifest.functions) > 1
    lines = [
        f"  {f'{name}: ' if several else ''}{assumption}"
        for name, function in manifest.functions.items()
        if name in captured
        for assumption in function.assumptions
        if OTHERWISE not in assumption
    ]
    if lines:
        count = "1 assumption" if len(lines) == 1 else f"{len(lines)} assumptions"
        warnings.warn(
            f"the model was captured under {count} on the values of its inputs, which each call checks:\n"
            + "\n".join([*lines, 'capture="assume" accepts this; capture="export" has only what torch.export asserts']),
            AssumptionWarning,
            stacklevel=4,
        )


_LOGS = {META_LOG: "torch._subclasses.fake_tensor", GUARD_LOG: "torch.fx.experimental.symbolic_shapes"}
"""Loggers to which torch writes a traceback for each operator or guard that it refuses."""


def advisor(
    calls: Mapping[str, Call], options: Options, lower_again: Callable[[Change, Options, Prober], None]
) -> Advisor:
    """Return what tries changes of ``options`` with which ``calls`` could not be lowered.

    ``lower_again`` lowers with a change and options, with the passes in the process of a prober: a crash is a failure.
    """
    prober = cache(lambda: Prober(Compilation.of(options).pipeline_of))

    @cache
    def weights() -> Weights:
        inline = options.importing.weights is Weights.INLINE and options.export.quantized is not Quantized.INTEGER
        # Inline ones would be sent to the other process by each trial.
        return Weights.EXTERNAL if inline and bytes_of(calls.values()) > MAX_BYTES else options.importing.weights

    def lowers(change: Change) -> bool:
        importing = replace(change.options.importing, weights=weights())
        running = RunOptions(cache=False)
        quiet = replace(change.options, importing=importing, printing=PrintOptions(), running=running)
        try:
            with warnings_filtered("ignore"), _without_logs():
                lower_again(change, quiet, prober())
        except Exception:  # of any kind, also of the model's own code
            return False
        return True

    return Advisor(calls, options, lowers, prober)


def _without_logs() -> AbstractContextManager[None]:
    """Return a context in which torch logs no refusals, which are part of a trial."""
    loggers = {patch: logging.getLogger(name) for patch, name in _LOGS.items()}
    return patched({patch.on(log): [*log.filters, lambda _: False] for patch, log in loggers.items()})
