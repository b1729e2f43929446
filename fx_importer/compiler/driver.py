"""The order of a compilation, from model to lowered module, and the functions that run it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch.export import ExportedProgram

from fx_importer.compiler.advice import Advisor, Change
from fx_importer.compiler.assumptions import warn_of_assumptions
from fx_importer.compiler.cached_lowering import through_the_cache
from fx_importer.compiler.compilation import Call, Compilation, Exported, Programs
from fx_importer.compiler.compiled import Compiled, folded_weights, manifest_of
from fx_importer.compiler.device_mesh import check_plan, collectives_of, on_mesh
from fx_importer.compiler.diagnose import SEARCH_SECONDS, ImportCanonical, all_unsupported, investigator
from fx_importer.compiler.division import divide
from fx_importer.compiler.outline import lower_imported
from fx_importer.compiler.quantized_arithmetic import in_chosen_arithmetic, lowered_as_chosen
from fx_importer.compiler.restored import recompiler
from fx_importer.compiler.result_types import check_result_types
from fx_importer.compiler.stages import admit, new_trace
from fx_importer.compiler.trials import advisor
from fx_importer.decompositions.engine.kept.kept_calls import passing_notes
from fx_importer.diagnostics.trace import Trace
from fx_importer.distributed import Mesh
from fx_importer.distributed.export import refuse_dtensors
from fx_importer.errors import (
    ExportError,
    MutatedStateError,
    QuantizationWarning,
    RandomNumbersWarning,
    UnsupportedProgramError,
)
from fx_importer.frontend.aliased_inputs import aliases_of_written
from fx_importer.frontend.dynamic_dimensions import dimension_names
from fx_importer.frontend.export import export_program
from fx_importer.frontend.torch_patches import tracing, without_collections
from fx_importer.fx_graph.programs import with_own_meta_storages
from fx_importer.fx_graph.result_types import check_types_of_results
from fx_importer.fx_passes.as_strided import RESOLVE_STRIDES, RESOLVE_STRIDES_OF_DECOMPOSITIONS
from fx_importer.fx_passes.assertions import REMOVE_ASSERTIONS
from fx_importer.fx_passes.constant_folding import FOLD_CONSTANTS, random_functions
from fx_importer.fx_passes.dead_code import ELIMINATE_DEAD_CODE
from fx_importer.fx_passes.default_cross_dim import FIX_AXIS_OF_CROSS
from fx_importer.fx_passes.empty_tensors import FOLD_EMPTY_TENSORS
from fx_importer.fx_passes.emulation.rank_zero import RANK_ZERO_TO_RANK_ONE
from fx_importer.fx_passes.folded_scales import FOLD_SCALES
from fx_importer.fx_passes.frozen_assumptions import FREEZE_ASSUMPTIONS
from fx_importer.fx_passes.fx_pass import FxContext, FxPass, FxStage
from fx_importer.fx_passes.identities import REMOVE_IDENTITIES
from fx_importer.fx_passes.inline_regions import INLINE_REGIONS
from fx_importer.fx_passes.legalization import LEGALIZE_DTYPES
from fx_importer.fx_passes.mutation import REFUSE_MUTATION
from fx_importer.fx_passes.narrowing import REPORT_NARROWING
from fx_importer.fx_passes.outline_layers import OUTLINE_LAYERS
from fx_importer.fx_passes.overlapping_writes import DIRECT_WRITES, REFUSE_OVERLAPPING_WRITES
from fx_importer.fx_passes.overloads import UNIFY_OVERLOADS
from fx_importer.fx_passes.runner import run_fx_passes
from fx_importer.fx_passes.selections.shared_masks import MASKS_TO_POSITIONS
from fx_importer.fx_passes.selections.without_selections import WITHOUT_SELECTIONS
from fx_importer.fx_passes.sizes.constant_sizes import FOLD_CONSTANT_SIZES
from fx_importer.fx_passes.sizes.numbers_to_tensors import NUMBERS_OF_DECOMPOSITIONS_TO_TENSORS, NUMBERS_TO_TENSORS
from fx_importer.fx_passes.sizes.sizes_of_one import FOLD_SIZES_OF_ONE
from fx_importer.fx_passes.sizes.sizes_to_tensors import SIZES_TO_TENSORS
from fx_importer.importing import FxImporter, ImportResult
from fx_importer.importing.entry_points import shared_state
from fx_importer.lowerings import EMITTERS
from fx_importer.mlir.bindings import ir
from fx_importer.options import DecompositionOptions, ExportOptions, Options, PrintOptions, Quantized
from fx_importer.pipelines import Stage
from fx_importer.probing import Prober
from fx_importer.quantization import check_dtypes, to_integers


def _refuse_dtensors(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    refuse_dtensors(program)
    return program


def _check_quantized_dtypes(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    check_dtypes(program)
    return program


def _may_be_integer(context: FxContext) -> bool:
    chosen = context.options.export.quantized
    return chosen is Quantized.INTEGER or (chosen is Quantized.AUTO and context.options.output_type.root in EMITTERS)


def _decompose(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    decomposed = context.decompose(program)
    options = context.options
    if options.decompositions.extra or options.decompositions.table is not None or options.lowering.lowerings:
        check_types_of_results(decomposed, program)  # of rules that are not ours
    return decomposed


EXPORTED = (
    FxPass("refuse-dtensors", _refuse_dtensors),
    FxPass("check-quantized-dtypes", _check_quantized_dtypes),
    FxPass("quantized-to-integers", lambda program, context: to_integers(program, context.remark), _may_be_integer),
)
"""Passes right after torch.export, to the program whose numbers the module has."""

DECOMPOSED = (
    INLINE_REGIONS,
    REFUSE_OVERLAPPING_WRITES,
    DIRECT_WRITES,
    FIX_AXIS_OF_CROSS,
    FOLD_CONSTANT_SIZES,
    MASKS_TO_POSITIONS,
    WITHOUT_SELECTIONS,
    RESOLVE_STRIDES,
    NUMBERS_TO_TENSORS,
    FxPass("decompose", _decompose),
    NUMBERS_OF_DECOMPOSITIONS_TO_TENSORS,
)
"""Passes to a functional program of the operators that the output type supports."""

CANONICAL = (
    FOLD_SIZES_OF_ONE,
    SIZES_TO_TENSORS,
    REMOVE_ASSERTIONS,
    FREEZE_ASSUMPTIONS,
    FOLD_EMPTY_TENSORS,
    RESOLVE_STRIDES_OF_DECOMPOSITIONS,
    RANK_ZERO_TO_RANK_ONE,
    UNIFY_OVERLOADS,
    REMOVE_IDENTITIES,
    ELIMINATE_DEAD_CODE,
)
"""Passes to the normal form, which `Lowered.programs` have."""

LEGAL = (
    REFUSE_MUTATION,
    LEGALIZE_DTYPES,
    FOLD_SCALES,
    FOLD_CONSTANTS,
    REPORT_NARROWING,
    OUTLINE_LAYERS,
)
"""Passes to programs that the output type can hold, which are imported."""

FX_STAGES = (
    FxStage("frontend", EXPORTED),
    FxStage("decompositions", DECOMPOSED),
    FxStage("fx_passes", (*CANONICAL, *LEGAL)),
    FxStage("importing"),
)
"""The stages of a compilation before those of `Compilation.pipeline`, each named after the package that runs it."""


def stages_of(compilation: Compilation) -> tuple[FxStage | Stage, ...]:
    """Return all stages of a compilation, in order, with the passes that its options select."""
    context = compilation.fx_context({})

    def selected(stage: FxStage) -> FxStage:
        return replace(stage, passes=tuple(fx_pass for fx_pass in stage.passes if fx_pass.when(context)))

    return (*map(selected, FX_STAGES), *compilation.pipeline.stages)


def compile_programs(
    calls: Mapping[str, Call],
    importer: FxImporter,
    options: Options,
    *,
    report: bool = True,
    trace: Trace | None = None,
    keep_importer: bool = False,
) -> Compiled:
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
    compiled = replace(compiled, manifest=compiled.manifest.with_dimension_names(names))
    if report:
        warn_of_assumptions(compiled.manifest, options.export)
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
) -> Compiled:
    """Lower exported programs, or read the result from the cache."""
    compilation = exported.compilation
    admit(compilation.options.output_type, importer.module.context)
    if cached:
        return through_the_cache(
            exported, importer, compilation, trace, partial(lower_exported, advisor=advisor), report=report
        )
    return lower_exported(exported, importer, compilation, trace, report=report, advisor=advisor, prober=prober)


def lower_exported(
    exported: Exported,
    importer: FxImporter,
    compilation: Compilation,
    trace: Trace,
    *,
    report: bool,
    elided: Mapping[object, int] | None = None,
    advisor: Advisor | None = None,
    prober: Prober | None = None,
) -> Compiled:
    """Lower exported programs to functions of one module.

    With ``report``, an error that lists unsupported nodes also lists operators that would fail to lower, and what
    ``advisor`` suggests. The weights numbered in ``elided`` are left out of the module. With ``prober``, the stages run
    in its process.
    """
    options = compilation.options
    canonical: Programs | None = None
    decomposed = decompose_programs(exported.computed, compilation, trace)
    try:
        with trace.stage("fx_passes") as record, without_collections():
            context = compilation.fx_context(exported.computed, record.remarks.append)
            canonical = run_fx_passes(CANONICAL, decomposed, context)
            if options.printing.graph:
                for program in canonical.values():
                    program.graph_module.print_readable()
            legal = record.programs = run_fx_passes(LEGAL, canonical, context)
        with trace.stage("importing", importer.module) as record, passing_notes(record.remarks.append):
            imported = import_legal(legal, importer, compilation, elided)
    except MutatedStateError:
        raise  # an option decides first: what else is unsupported depends on it
    except UnsupportedProgramError as error:
        if not report or canonical is None:
            raise
        raise all_unsupported(error, canonical, compilation, import_canonical_with(importer), advisor) from None
    outcome = lower_imported(imported, compilation, trace, prober)
    trace.imported = None  # it was only kept for diagnosis
    if compilation.pipeline.stages:
        check_result_types(legal, imported.module)
    if options.importing.plan is not None:
        divide(imported.module, Mesh(tuple(imported.mesh.items())), imported.signatures)
    aliases: dict[str, dict[int, str]] = {}
    for name, program in exported.given.items():
        names = {argument.placeholder: argument.name for argument in imported.signatures[name].arguments}
        aliases[name] = {leaf: names.get(each, each) for leaf, each in aliases_of_written(program).items()}
    manifest = manifest_of(imported, outcome, compilation).with_aliases(aliases)
    return Compiled(
        canonical,
        exported.given,
        imported.module,
        manifest,
        trace,
        options,
        recompiler(options, importer),
        outcome.operator_output_types,
        () if compilation.target.random else random_functions(canonical.values()),
        integers=exported.integers,
        folded=folded_weights(trace, exported.given),
    )


@tracing()
def export_models(calls: Mapping[str, Call], compilation: Compilation, trace: Trace) -> Exported:
    """Export each model with its example inputs.

    Raises:
        ExportError: if torch.export cannot capture a model.
        UsageError: for operands of dequantize operators whose dtypes differ from those that the operators name, and for
            invalid scales of a quantized model that is lowered to integers.
    """
    with trace.stage("frontend") as record:
        kept = (compilation.options.export, compilation.target.data_dependent_sizes)
        programs = {name: with_own_meta_storages(export_program(*call, *kept)) for name, call in calls.items()}
        exported = _in_arithmetic(programs, calls, compilation, record.remarks.append)
        trace.programs = record.programs = exported.computed
    return exported


def _in_arithmetic(
    programs: Programs, calls: Mapping[str, Call], compilation: Compilation, remark: Callable[[str], None]
) -> Exported:
    models = [f for f, _, _ in calls.values()]
    return in_chosen_arithmetic(
        programs, models, compilation, lambda chosen, remark: checked_programs(programs, chosen, remark), remark
    )


def checked_programs(
    exported: Programs, compilation: Compilation, remark: Callable[[str], None] = lambda remark: None
) -> Programs:
    """Check exported programs, and return them in the form whose numbers the module has. Raises as `export_models`."""
    return run_fx_passes(EXPORTED, exported, compilation.fx_context(exported, remark))


@without_collections()
def decompose_programs(exported: Programs, compilation: Compilation, trace: Trace) -> Programs:
    """Decompose operators that the output type does not support, and fold sizes that depend on constants.

    Raises:
        UnsupportedProgramError: if a program writes to expanded tensors, or indexes memory of unknown layout.
    """
    with trace.stage("decompositions") as record:
        context = compilation.fx_context(exported, record.remarks.append)
        record.programs = programs = run_fx_passes(DECOMPOSED, exported, context)
    return programs


def canonical_programs(exported: Programs, compilation: Compilation) -> Programs:
    """Return the programs in the normal form that `Lowered.programs` have; ``exported`` are not changed.

    Raises:
        UnsupportedProgramError: as `decompose_programs` does.
        StageFailed: if a pass fails otherwise.
    """
    trace = Trace()
    decomposed = decompose_programs(exported, compilation, trace)
    with trace.stage("fx_passes"), without_collections():
        return run_fx_passes(CANONICAL, decomposed, compilation.fx_context(exported))


@without_collections()
def import_legal(
    legal: Programs,
    importer: FxImporter,
    compilation: Compilation,
    elided: Mapping[object, int] | None = None,
) -> ImportResult:
    """Import programs as functions of one module, in which weights numbered in ``elided`` are handles.

    Raises:
        UnsupportedProgramError: listing everything that cannot be imported.
        UsageError: if the programs do not fit the mesh, the plan or each other.
    """
    check_plan(legal, compilation)
    groups, collectives = collectives_of(legal, compilation)
    imported = importer.import_programs(
        legal,
        compilation.importing,
        state=shared_state(legal),
        handlers={**collectives, **compilation.handlers},
        tensors_only=compilation.target.tensors_only,
        assertions=compilation.target.assertions,
        elided=elided or {},
    )
    return on_mesh(imported, groups, compilation)


def import_canonical_with(importer: FxImporter) -> ImportCanonical:
    """Return the function that imports canonical programs, with the hooks of ``importer``, for diagnosis."""

    def imported(canonical: Programs, compilation: Compilation) -> ir.Operation:
        legal = run_fx_passes(LEGAL, canonical, compilation.fx_context(canonical))
        return import_legal(legal, importer.fresh(), compilation).module.operation

    return imported


def advisor_for(
    calls: Mapping[str, Call], programs: Programs | None, importer: FxImporter, options: Options
) -> Advisor:
    """Return what tries other options after a failure of ``programs``, which are exported anew where necessary."""

    def lower_again(change: Change, options: Options, prober: Prober) -> None:
        compilation, trace = Compilation.of(options), Trace()
        if change.calls is not None or programs is None:
            exported = export_models(change.calls or calls, compilation, trace)
        else:
            exported = _in_arithmetic(programs, calls, compilation, lambda remark: None)
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
