"""Driver of the steps: export, decompose, canonicalize, legalize, import, lower."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fx_importer.compiler.caching import Place, place_of
from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.compiled import Compiled, manifest_of
from fx_importer.compiler.diagnose import all_unsupported, investigator
from fx_importer.compiler.division import divide
from fx_importer.compiler.outline import lower_imported
from fx_importer.compiler.restored import recompiler, restored
from fx_importer.compiler.stages import admit, new_trace
from fx_importer.compiler.steps import (
    Call,
    Programs,
    canonicalize_programs,
    decompose_programs,
    drawing_functions,
    export_models,
    import_legal,
    legalize_programs,
)
from fx_importer.diagnostics.trace import Trace
from fx_importer.distributed import Mesh
from fx_importer.errors import FxImporterError, RandomNumbersWarning, UnsupportedProgramError
from fx_importer.frontend.aliased_inputs import aliases_of_written
from fx_importer.frontend.dynamic_dimensions import dimension_names
from fx_importer.frontend.torch_patches import tracing
from fx_importer.importing import FxImporter
from fx_importer.options import DecompositionOptions, ExportOptions, Options, PrintOptions
from fx_importer.pipelines.isolated_runner import stage_runner


def compile_programs(
    calls: Mapping[str, Call],
    importer: FxImporter,
    options: Options,
    *,
    report: bool = True,
    trace: Trace | None = None,
) -> Compiled:
    """Export models and lower them to functions of one module, or read the result from the cache.

    Args:
        calls: models and their example inputs, by the names of functions.
        importer: the importer, into whose module the programs are imported.
        options: for the whole compilation.
        report: whether failures are diagnosed and written to a report.
        trace: the record to add the stages to, which then controls reports and diagnosis. Nothing is cached then.

    Raises:
        FxImporterError: as `fx_importer.lower` does.
    """
    compilation = Compilation.of(options)
    cached = report and trace is None and options.running.is_cached
    if trace is None:
        trace = new_trace(options, compilation.stage_names, investigator(compilation)) if report else Trace()
    admit(options.output_type, importer.module.context)
    exported = export_models(calls, compilation, trace)
    if cached:
        compiled = _through_the_cache(exported, importer, compilation, trace)
    else:
        compiled = lower_exported(exported, importer, compilation, trace, report=report)
    names = {
        name: dimension_names(f, compiled.exported[name], options.export.dynamic_shapes)
        for name, (f, _, _) in calls.items()
    }
    compiled = replace(compiled, manifest=compiled.manifest.with_dimension_names(names))
    if report and compiled.drawn:
        warnings.warn(
            f"{options.output_type.value} has no random numbers: those of {', '.join(compiled.drawn)} were drawn by "
            "this lowering, and are the same in each call of the module",
            RandomNumbersWarning,
            stacklevel=3,
        )
    return compiled


def lower_exported(
    exported: Programs,
    importer: FxImporter,
    compilation: Compilation,
    trace: Trace,
    *,
    report: bool,
    elided: Mapping[object, int] | None = None,
) -> Compiled:
    """Lower exported programs to functions of one module.

    With ``report``, an error that lists unsupported nodes also lists operators that would fail to lower. The weights
    numbered in ``elided`` are left out of the module.
    """
    options = compilation.options
    run = stage_runner(importer.module, options.running)
    with tracing():
        decomposed = decompose_programs(exported, compilation, trace)
        canonical = canonicalize_programs(decomposed, exported, compilation, trace)
    if options.printing.graph:
        for program in canonical.values():
            program.graph_module.print_readable()
    try:
        legal = legalize_programs(canonical, compilation, trace)
        imported = import_legal(legal, importer, compilation, trace, elided)
    except UnsupportedProgramError as error:
        if not report:
            raise
        raise all_unsupported(error, canonical, importer, compilation) from None
    outcome = lower_imported(imported, compilation, trace, run)
    trace.imported = None  # it was only kept for diagnosis
    if options.importing.plan is not None:
        divide(imported.module, Mesh(tuple(imported.mesh.items())), imported.signatures)
    aliases: dict[str, dict[int, str]] = {}
    for name, program in exported.items():
        names = {each.placeholder: each.name for each in imported.signatures[name].arguments}
        aliases[name] = {leaf: names.get(each, each) for leaf, each in aliases_of_written(program).items()}
    manifest = manifest_of(imported, outcome, compilation).with_aliases(aliases)
    return Compiled(
        canonical,
        exported,
        imported.module,
        manifest,
        trace,
        options,
        recompiler(options, importer),
        outcome.operator_output_types,
        () if compilation.target.random else drawing_functions(legal),
    )


def _through_the_cache(exported: Programs, importer: FxImporter, compilation: Compilation, trace: Trace) -> Compiled:
    """Return the result from the cache, or lower the programs and cache the result if possible."""
    with trace.stage("cache") as record:
        place = place_of(exported, importer, compilation.options, record.remarks.append)
        manifest = place.read(importer.module) if place else None
        if place and manifest:
            record.remarks.append(f"taken from {place}")
    if place is None:
        return lower_exported(exported, importer, compilation, trace, report=True)
    if manifest is None:
        return _lower_and_keep(place, exported, importer, compilation, trace)

    return restored(exported, importer.module, manifest, compilation.options, importer, trace)


def _lower_and_keep(
    place: Place, exported: Programs, importer: FxImporter, compilation: Compilation, trace: Trace
) -> Compiled:
    """Lower programs with elided weights, cache the result, and link the weights into it."""
    # No report is written for a failed attempt, since it would lack the weights.
    attempt = replace(trace, reporter=None, investigate=None, stages=[*trace.stages])
    try:
        compiled = lower_exported(exported, importer, compilation, attempt, report=False, elided=place.elided.numbers)
        with attempt.stage("keep") as record:
            drawn = "not cached: random numbers were drawn"
            record.remarks.append(drawn if compiled.drawn else place.write(compiled.module, compiled.manifest))
            place.give_weights(compiled.module)
    except FxImporterError:
        whole = importer.fresh()
        admit(compilation.options.output_type, whole.module.context)
        return lower_exported(exported, whole, compilation, trace, report=True)
    trace.stages = attempt.stages
    return replace(compiled, trace=trace)


def recompile(
    options: Options,
    importer: FxImporter,
    f: Any,
    args: Sequence[Any],
    decompositions: DecompositionOptions | None,
    trace: Trace | None = None,
) -> Compiled:
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
    calls = {name: (each, args, {}) for name, each in programs.items()}
    return compile_programs(calls, importer.fresh(), options, report=False, trace=trace)
