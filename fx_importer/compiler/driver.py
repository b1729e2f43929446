"""The order of a compilation, from model to lowered module, and the functions that run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch.export import ExportedProgram

from fx_importer.compiler.advice import Advisor
from fx_importer.compiler.compilation import Call, Compilation, Exported, Programs
from fx_importer.compiler.device_mesh import check_plan, collectives_of, on_mesh
from fx_importer.compiler.diagnose import ImportCanonical, all_unsupported
from fx_importer.compiler.module_manifest import manifest_of
from fx_importer.compiler.outline import lower_imported
from fx_importer.compiler.quantized_arithmetic import in_chosen_arithmetic
from fx_importer.compiler.restored import recompiler
from fx_importer.compiler.result_types import check_result_types
from fx_importer.decompositions.engine.kept.kept_calls import passing_notes
from fx_importer.diagnostics.trace import Trace
from fx_importer.distributed import Mesh
from fx_importer.distributed.export import refuse_dtensors
from fx_importer.errors import (
    MutatedStateError,
    UnsupportedProgramError,
)
from fx_importer.frontend.aliased_inputs import aliases_of_written
from fx_importer.frontend.export import export_program
from fx_importer.frontend.torch_patches import tracing, without_collections
from fx_importer.fx_graph.overlapping_writes import refuse_overlapping_writes
from fx_importer.fx_graph.programs import with_own_meta_storages
from fx_importer.fx_graph.result_types import check_types_of_results
from fx_importer.fx_graph.view_writes import with_direct_writes
from fx_importer.fx_passes.as_strided import RESOLVE_STRIDES, RESOLVE_STRIDES_OF_DECOMPOSITIONS
from fx_importer.fx_passes.assertions import REMOVE_ASSERTIONS
from fx_importer.fx_passes.constant_folding import FOLD_CONSTANTS, random_functions
from fx_importer.fx_passes.dead_code import ELIMINATE_DEAD_CODE
from fx_importer.fx_passes.default_cross_dim import FIX_AXIS_OF_CROSS
from fx_importer.fx_passes.empty_tensors import FOLD_EMPTY_TENSORS
from fx_importer.fx_passes.emulation.rank_zero import RANK_ZERO_TO_RANK_ONE
from fx_importer.fx_passes.frozen_assumptions import FREEZE_ASSUMPTIONS
from fx_importer.fx_passes.fx_pass import FxContext, FxPass, FxStage
from fx_importer.fx_passes.identities import REMOVE_IDENTITIES
from fx_importer.fx_passes.inline_regions import INLINE_REGIONS
from fx_importer.fx_passes.legalization import LEGALIZE_DTYPES
from fx_importer.fx_passes.mutation import REFUSE_MUTATION
from fx_importer.fx_passes.narrowing import REPORT_NARROWING
from fx_importer.fx_passes.outline_layers import OUTLINE_LAYERS
from fx_importer.fx_passes.overloads import UNIFY_OVERLOADS
from fx_importer.fx_passes.positional_indices import READ_POSITIONS_IN_PLACE
from fx_importer.fx_passes.runner import run_fx_passes
from fx_importer.fx_passes.selections.shared_masks import MASKS_TO_POSITIONS
from fx_importer.fx_passes.selections.without_selections import WITHOUT_SELECTIONS
from fx_importer.fx_passes.single_elements import REFUSE_CONVERTED_ELEMENTS
from fx_importer.fx_passes.sizes.asserted_numbers import CHECK_ASSERTED_NUMBERS
from fx_importer.fx_passes.sizes.constant_sizes import FOLD_CONSTANT_SIZES
from fx_importer.fx_passes.sizes.decided_sizes import CHECK_DECIDED_SIZES
from fx_importer.fx_passes.sizes.masked_writes import CHECK_MASKED_WRITES
from fx_importer.fx_passes.sizes.numbers_to_tensors import NUMBERS_OF_DECOMPOSITIONS_TO_TENSORS, NUMBERS_TO_TENSORS
from fx_importer.fx_passes.sizes.required_sizes import CHECK_REQUIRED_SIZES
from fx_importer.fx_passes.sizes.sizes_of_one import FOLD_SIZES_OF_ONE
from fx_importer.fx_passes.sizes.sizes_to_tensors import SIZES_TO_TENSORS
from fx_importer.importing import FxImporter, ImportResult
from fx_importer.importing.entry_points import shared_state
from fx_importer.lowerings import EMITTERS
from fx_importer.mlir.bindings import ir
from fx_importer.options import Quantized
from fx_importer.pipelines import Stage
from fx_importer.pipelines.division import divide
from fx_importer.probing import Prober
from fx_importer.quantization import check_dtypes, outer_scales, to_integers
from fx_importer.results.changed_weights import lowered_weights
from fx_importer.results.lowered import Lowered
from fx_importer.results.lowered_record import weights_read


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
    FxPass("refuse-overlapping-writes", lambda program, _: refuse_overlapping_writes(program)),
    FxPass("direct-writes", lambda program, _: with_direct_writes(program)),
    FIX_AXIS_OF_CROSS,
    FOLD_CONSTANT_SIZES,
    CHECK_DECIDED_SIZES,
    CHECK_ASSERTED_NUMBERS,
    CHECK_REQUIRED_SIZES,
    CHECK_MASKED_WRITES,
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
    READ_POSITIONS_IN_PLACE,
    FOLD_CONSTANTS,
    REFUSE_CONVERTED_ELEMENTS,
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
) -> Lowered:
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
            # A context of its own: `Lowered.programs` are the canonical programs, which later passes do not change.
            context = compilation.fx_context(canonical, record.remarks.append)
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
        divide(imported.module, Mesh(tuple(imported.manifest.mesh.items())), imported.manifest.functions)
    aliases: dict[str, dict[int, str]] = {}
    for name, program in exported.given.items():
        names = {argument.placeholder: argument.name for argument in imported.manifest.functions[name].arguments}
        aliases[name] = {leaf: names.get(source, source) for leaf, source in aliases_of_written(program).items()}
    manifest = manifest_of(imported, outcome, compilation).with_aliases(aliases)
    manifest = manifest.with_scales({name: outer_scales(program) for name, program in exported.given.items()})
    return Lowered(
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
        weights=lowered_weights(exported.given, weights_read(trace), manifest),
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
        programs = {
            name: with_own_meta_storages(export_program(*call, *kept, record.remarks.append))
            for name, call in calls.items()
        }
        exported = in_arithmetic(programs, calls, compilation, record.remarks.append)
        trace.programs = record.programs = exported.computed
    return exported


def in_arithmetic(
    programs: Programs, calls: Mapping[str, Call], compilation: Compilation, remark: Callable[[str], None]
) -> Exported:
    """Check exported programs, and resolve ``quantized="auto"`` to integers or floats. Raises as `export_models`."""
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
