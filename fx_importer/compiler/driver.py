"""Export, decompose, canonicalize, import, lower: the one file that knows the order."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.export import ExportedProgram

from fx_importer.api.lowered import Later, Lowered
from fx_importer.canonicalization import (
    canonicalize,
    fold_constant_sizes,
    fold_constants,
    items_to_tensors,
    legalize,
    outline_layers,
)
from fx_importer.compiler.caching import Place, place_of
from fx_importer.compiler.diagnose import causes_of, investigator, prober_for
from fx_importer.compiler.fallback import check_fallback
from fx_importer.compiler.outline import lower_imported
from fx_importer.compiler.stages import admit, new_trace
from fx_importer.decompositions import Overrides, decompose
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import FxImporterError, UnsupportedProgramError, UsageError, not_imported
from fx_importer.exporting import export_program
from fx_importer.fx_graph.programs import weight_names
from fx_importer.importing import FxImporter
from fx_importer.importing.entry_points import shared_state
from fx_importer.importing.program_signature import mutated_state
from fx_importer.lowerings import handlers_for, layers
from fx_importer.manifest import NARROW, Manifest, Weight
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.resources import key_of, resources_in
from fx_importer.options import (
    DecompositionOptions,
    ExportOptions,
    Mutation,
    Options,
    PrintOptions,
    Unsupported,
    Weights,
)
from fx_importer.output_types import OutputType
from fx_importer.pipelines import Pipeline
from fx_importer.pipelines.isolated_runner import stage_runner
from fx_importer.probing import expected
from fx_importer.process.garbage_collection import without_collections
from fx_importer.targets import target_for

Call = tuple[Any, Sequence[Any], Mapping[str, Any]]
"""A model and what it is called with. An exported program needs no inputs."""


def compile_programs(
    calls: Mapping[str, Call],
    importer: FxImporter,
    options: Options,
    *,
    report: bool = True,
    trace: Trace | None = None,
) -> Lowered:
    """Carry models to functions of one module, keeping a record of every stage; ``report`` what fails.

    The record is ``trace``, if there is one; it then has what reports and explains.
    """
    Overrides.of(options.decompositions.keep, options.decompositions.extra)  # raises before any work, as the next does
    layers(options.lowering.lowerings)
    check_fallback(options)
    target = target_for(options.output_type)
    pipeline = target.pipeline(options.lowering)
    stages = ("export", "decompose", "canonicalize", "legalize", "import", *(stage.name for stage in pipeline.stages))
    cached = report and trace is None and options.running.is_cached
    if trace is None:
        trace = new_trace(options, stages, investigator(options)) if report else Trace()
    admit(options.output_type, importer.module.context)
    with trace.stage("export") as record:
        exported = {name: export_program(*call, options.export) for name, call in calls.items()}
        trace.programs = record.programs = exported
    if not cached:
        return _lowered(exported, importer, pipeline, options, trace, report=report)
    with trace.stage("cache") as record:
        place = place_of(exported, importer, options, record.remarks.append)
        manifest = place.read(importer.module) if place else None
        if place and manifest:
            record.remarks.append(f"taken from {place}")
    if place is None:
        return _lowered(exported, importer, pipeline, options, trace, report=report)
    if manifest is None:
        return _kept(place, exported, importer, pipeline, options, trace)
    programs = Later(exported, lambda: canonical(exported, options, Trace()))
    relower = functools.partial(_relower, importer, options)
    return Lowered(programs, exported, importer.module, manifest, trace, options, relower)


def _kept(
    place: Place,
    exported: Mapping[str, ExportedProgram],
    importer: FxImporter,
    pipeline: Pipeline,
    options: Options,
    trace: Trace,
) -> Lowered:
    """Lower programs without their weights, keep what comes of it, and give it the weights."""
    importer.weights.elided = place.elided.numbers
    # Of an attempt that fails, no report is written: it would have no weights.
    attempt = replace(trace, reporter=None, investigate=None, stages=[*trace.stages])
    try:
        lowered = _lowered(exported, importer, pipeline, options, attempt, report=False)
        with attempt.stage("keep") as record:
            record.remarks.append(place.write(lowered.module, lowered.manifest))
            place.give_weights(lowered.module)
    except FxImporterError:
        whole = FxImporter(hooks=importer.hooks, handlers=importer.handlers)
        admit(options.output_type, whole.module.context)
        return _lowered(exported, whole, pipeline, options, trace, report=True)
    trace.stages = attempt.stages
    return replace(lowered, trace=trace)


def _lowered(
    exported: Mapping[str, ExportedProgram],
    importer: FxImporter,
    pipeline: Pipeline,
    options: Options,
    trace: Trace,
    *,
    report: bool,
) -> Lowered:
    """Carry exported programs to functions of one module."""
    run = stage_runner(importer.module, options.running)
    programs = canonical(exported, options, trace)
    if options.printing.graph:
        for program in programs.values():
            program.graph_module.print_readable()
    try:
        import_canonical(programs, importer, options, trace)
    except UnsupportedProgramError as error:
        if not report:
            raise
        raise _complete(error, programs, importer, options) from None
    outcome = lower_imported(importer.module, importer.defined, pipeline, options, trace, run)
    trace.imported = None  # it was there to find out what failed
    manifest = Manifest(
        options.output_type.value,
        {name: importer.functions[name] for name in programs},
        {name: held for function in programs for name, held in importer.state[function].items()},
        {name: held for function in programs for name, held in importer.constants[function].items()},
        outcome.operator_stubs,
        outcome.fallback,
        _weights(importer, options.importing.weights),
    )
    if options.lowering.narrow_integers and target_for(options.output_type).narrows:
        manifest = manifest.passing(NARROW)
    relower = functools.partial(_relower, importer, options)
    return Lowered(
        programs, exported, importer.module, manifest, trace, options, relower, outcome.operator_output_types
    )


@without_collections()
def canonical(exported: Mapping[str, ExportedProgram], options: Options, trace: Trace) -> dict[str, ExportedProgram]:
    """Return programs as the importer reads them, with what the output type does not take decomposed."""
    target = target_for(options.output_type)
    asserts = target.importing(options.importing).runtime_asserts
    programs = dict(exported)
    with trace.stage("decompose") as record:
        for name, program in programs.items():
            settled = fold_constant_sizes(program)
            programs[name] = decompose(settled, target.table(options, settled), record.remarks.append)
            if not target.has_numbers:
                programs[name] = items_to_tensors(programs[name])
        record.programs = programs
    with trace.stage("canonicalize") as record:
        programs = {
            name: canonicalize(program, assertions=asserts, in_place=program is not exported[name])
            for name, program in programs.items()
        }
        record.programs = programs
    return programs


@without_collections()
def import_canonical(
    programs: Mapping[str, ExportedProgram], importer: FxImporter, options: Options, trace: Trace
) -> None:
    """Import programs in the dtypes of the output type, a function each.

    Raises:
        UsageError: if state is to be overwritten, and the output type cannot.
        UnsupportedProgramError: listing what cannot be imported.
    """
    target = target_for(options.output_type)
    handlers = handlers_for(layers(options.lowering.lowerings), options.output_type, options.lowering.fallback)
    if options.importing.mutation is Mutation.MUTABLE and not target.in_place:
        _refuse_in_place(programs, options.output_type)
    with trace.stage("legalize") as record:
        legal = record.programs = {name: legalize(program, target.dtypes) for name, program in programs.items()}
    with trace.stage("import", importer.module), importer.handling(handlers):
        state = shared_state(legal)
        if target.folds:
            inline = options.importing.weights is Weights.INLINE
            legal = {
                name: fold_constants(program, state if inline else state | weight_names(program))
                for name, program in legal.items()
            }
        if options.importing.outline_layers:
            legal = {name: outline_layers(program) for name, program in legal.items()}
        for name, program in legal.items():
            named = replace(target.importing(options.importing), func_name=name)
            importer.import_exported_program(program, named, state, tensors_only=target.tensors_only)


def _weights(importer: FxImporter, policy: Weights) -> dict[str, Weight]:
    """Return what is not in the module; of resources, those that it names.

    A stage in another process may have given a resource another type. MLIR then takes it for a new one, and adds a
    number to the name, with which it is that of no resource that was there before.
    """
    if policy is not Weights.EXTERNAL:
        return importer.external
    found: dict[str, Weight] = {}
    for key in dict.fromkeys(key_of(value) for _, _, value in resources_in(importer.module.operation)):
        name = key
        while name not in importer.external and (shorter := re.sub(r"_\d+$", "", name)) != name:
            name = shorter
        if name in importer.external:
            found[key] = importer.external[name]
    order = {weight: number for number, weight in enumerate(importer.external.values())}
    return dict(sorted(found.items(), key=lambda each: order[each[1]]))


def _relower(
    importer: FxImporter,
    options: Options,
    f: Any,
    args: Sequence[Any],
    decompositions: DecompositionOptions | None,
) -> Lowered:
    """Lower ``f`` with the options of another program; no failure is reported, and nothing printed."""
    options = replace(
        options,
        export=ExportOptions(),
        printing=PrintOptions(),
        running=replace(options.running, dump_ir=None, cache=False),
        decompositions=decompositions or options.decompositions,
    )
    new = FxImporter(hooks=importer.hooks, handlers=importer.handlers)
    return compile_programs({options.importing.func_name: (f, args, {})}, new, options, report=False)


def _complete(
    error: UnsupportedProgramError, programs: Mapping[str, ExportedProgram], importer: FxImporter, options: Options
) -> UnsupportedProgramError:
    """Return ``error`` with all else that would be refused."""
    headline = error.headline
    if options.lowering.unsupported is Unsupported.OUTLINE:
        headline = f"{headline.removesuffix(':')} (unsupported='outline' is for what can be imported):"
    if not any(each.node for each in error.unsupported_nodes):
        return UnsupportedProgramError(headline, error.unsupported_nodes)

    inlined = replace(options, importing=replace(options.importing, outline_layers=False))  # of layers, each is listed

    def imported(programs: Mapping[str, ExportedProgram]) -> ir.Operation:
        new = FxImporter(hooks=importer.hooks, handlers=importer.handlers)
        import_canonical(programs, new, inlined, Trace())
        return new.module.operation

    prober = prober_for(options)
    found = expected(programs, imported, lambda module: causes_of(module, options, prober))
    if headline == not_imported(len(error.unsupported_nodes)):
        headline = not_imported(len(found.unsupported_nodes))
    return UnsupportedProgramError(headline, found.unsupported_nodes, found.causes)


def _refuse_in_place(programs: Mapping[str, ExportedProgram], output_type: OutputType) -> None:
    for program in programs.values():
        signature = program.graph_signature
        mutated = [*mutated_state(program), *signature.user_inputs_to_mutate.values()]
        if mutated:
            raise UsageError(
                f"{output_type.value} has values and no memory to overwrite, and the program mutates "
                f"{', '.join(map(repr, sorted(mutated)))}: pass mutation='functional'"
            )
