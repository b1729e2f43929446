"""Steps from models to a module in the torch dialect, each timed and recorded as a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.compiler.compilation import Compilation
from fx_importer.decompositions import decompose
from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.diagnostics.trace import Trace
from fx_importer.distributed import Mesh, Plan
from fx_importer.distributed.collectives import calls_in, process_groups
from fx_importer.distributed.export import refuse_dtensors
from fx_importer.distributed.module_attributes import set_mesh
from fx_importer.errors import UsageError
from fx_importer.frontend.export import export_program
from fx_importer.frontend.torch_patches import tracing, without_collections
from fx_importer.fx_graph.programs import weight_names, with_own_meta_storages
from fx_importer.fx_passes import (
    Dtypes,
    canonicalize,
    computed_narrower,
    fix_axis_of_cross,
    fold_constant_sizes,
    fold_constants,
    fold_sizes_of_one,
    legalize,
    numbers_to_tensors,
    outline_layers,
    refuse_overlapping_writes,
    resolve_strides,
    sizes_to_tensors,
    with_number_results,
)
from fx_importer.fx_passes.constant_folding import DRAWN
from fx_importer.importing import FxImporter, ImportResult
from fx_importer.importing.entry_points import shared_state
from fx_importer.importing.handlers import Handler
from fx_importer.importing.handlers.collectives import collectives_in_groups, refused_collectives
from fx_importer.importing.program_results import mutated_state
from fx_importer.manifest import ProcessGroup
from fx_importer.options import ImportOptions, Mutation, Quantized, Weights
from fx_importer.output_types import OutputType
from fx_importer.quantization import check_dtypes, to_integers
from fx_importer.targets.target import Collectives

Call = tuple[Any, Sequence[Any], Mapping[str, Any]]
"""A model and its example inputs. An exported program needs no inputs."""

Programs = Mapping[str, ExportedProgram]
"""Programs by the names of their functions."""


@tracing()
def export_models(calls: Mapping[str, Call], compilation: Compilation, trace: Trace) -> Programs:
    """Export each model with its example inputs.

    Raises:
        ExportError: if torch.export cannot capture a model.
        UsageError: for operands of dequantize operators that have other dtypes than these name, and for scales of a
            quantized model that are no scales, if it is to be integer.
    """
    with trace.stage("export") as record:
        options = compilation.options.export
        exported = {name: with_own_meta_storages(export_program(*call, options)) for name, call in calls.items()}
        for program in exported.values():
            refuse_dtensors(program)
            check_dtypes(program)
        if options.quantized is Quantized.INTEGER:
            exported = {name: to_integers(each, record.remarks.append) for name, each in exported.items()}
        trace.programs = record.programs = exported
    return exported


@without_collections()
def decompose_programs(exported: Programs, compilation: Compilation, trace: Trace) -> Programs:
    """Decompose operators that the output type does not support, and fold sizes that depend on constants.

    Raises:
        UnsupportedProgramError: if a program writes to expanded tensors, or indexes memory of unknown layout.
    """
    programs: dict[str, ExportedProgram] = {}
    with trace.stage("decompose") as record:
        for name, program in exported.items():
            refuse_overlapping_writes(program)
            folded = resolve_strides(fold_constant_sizes(fix_axis_of_cross(program)))
            if compilation.target.scalars:
                programs[name] = decompose(folded, compilation.table(folded), record.remarks.append)
            else:
                programs[name] = _decompose_numbers(folded, compilation, record.remarks.append)
            programs[name] = fold_sizes_of_one(programs[name])
            if not compilation.target.dynamic_shapes:
                programs[name] = sizes_to_tensors(programs[name])
        record.programs = programs
    return programs


def _decompose_numbers(
    program: ExportedProgram, compilation: Compilation, remark: Callable[[str], None]
) -> ExportedProgram:
    """Decompose ``program`` with tensors for numbers from items; also for those that only decompositions show."""
    floats = compilation.target.dtypes.numbers
    folded = numbers_to_tensors(program, floats)
    decomposed = with_number_results(decompose(folded, compilation.table(folded), remark), folded)
    again = numbers_to_tensors(decomposed, floats, functional=True)
    if again is decomposed:
        return decomposed
    return with_number_results(decompose(again, compilation.table(again), remark), folded)


@without_collections()
def canonicalize_programs(
    decomposed: Programs, exported: Programs, compilation: Compilation, trace: Trace
) -> dict[str, ExportedProgram]:
    """Return the programs in the canonical form that the importer expects.

    Graphs are changed in place, except for those still shared with the user's ``exported`` programs.
    """
    asserts = compilation.importing.runtime_asserts
    with trace.stage("canonicalize") as record:
        programs = {
            name: canonicalize(program, assertions=asserts, in_place=program is not exported[name])
            for name, program in decomposed.items()
        }
        record.programs = programs
    return programs


@tracing()
@without_collections()
def legalize_programs(canonical: Programs, compilation: Compilation, trace: Trace) -> Programs:
    """Return the programs with dtypes that the output type supports.

    Raises:
        UsageError: if the programs overwrite memory and the output type does not support it.
        UnsupportedProgramError: listing values with dtypes that the output type does not support.
    """
    target = compilation.target
    if compilation.importing.mutation is Mutation.MUTABLE and not target.memory:
        _check_nothing_is_overwritten(canonical, target.output_type)
    dtypes = target.dtypes_for(compilation.options.lowering)
    with trace.stage("legalize") as record:
        legal = record.programs = {name: legalize(program, dtypes) for name, program in canonical.items()}
    return legal


@without_collections()
def import_legal(
    legal: Programs,
    importer: FxImporter,
    compilation: Compilation,
    trace: Trace,
    elided: Mapping[object, int] | None = None,
) -> ImportResult:
    """Import programs as functions of one module, in which weights numbered in ``elided`` are handles.

    Raises:
        UnsupportedProgramError: listing everything that cannot be imported.
    """
    options, target = compilation.importing, compilation.target
    with trace.stage("import", importer.module) as record:
        state = shared_state(legal)
        if not target.random and (drawn := drawn_nodes(legal)):
            place = unsupported_node(drawn[0], "").where
            record.remarks.append(
                f"random numbers are drawn here, and are the same in each call: {len(drawn)} tensors"
                + (f", the first at {place}" if place else "")
            )
        if target.folds_constants:
            inline = options.weights is Weights.INLINE
            with tracing():
                legal = {
                    name: fold_constants(program, state if inline else state | weight_names(program))
                    for name, program in legal.items()
                }
        if not compilation.options.lowering.fallback:  # which computes float64
            record.remarks += _narrowing(legal, target.dtypes)
        if options.outline_layers:
            with tracing():
                legal = {name: outline_layers(program) for name, program in legal.items()}
        _check_plan(legal, compilation)
        groups, collectives = _collectives(legal, compilation)
        imported = importer.import_programs(
            legal,
            options,
            state=state,
            handlers={**collectives, **compilation.handlers},
            tensors_only=target.tensors_only,
            elided=elided or {},
        )
        if options.mesh is None or target.collectives is Collectives.REFUSED:
            return imported
        mesh = Mesh.get(options.mesh)
        set_mesh(importer.module, mesh, lowered=target.collectives is Collectives.LOWERED)
        imported = replace(imported, mesh=dict(mesh.axes), process_groups=groups)
        return imported if options.plan is None else _sharded(imported, mesh, options)


def _sharded(imported: ImportResult, mesh: Mesh, options: ImportOptions) -> ImportResult:
    """Return ``imported`` with the shardings of its plan in the signatures. Raises `UsageError` if it does not fit."""
    try:
        signatures = Plan.get(options.plan, mesh).sharded(imported.signatures, mesh)
    except UsageError as error:
        hint = "" if options.weights is Weights.ARGS else ". Weights are divided with weights='args'"
        raise UsageError(f"{error}{hint}") from None
    functions = {name: replace(each, signature=signatures[name]) for name, each in imported.functions.items()}
    return replace(imported, functions=functions)


def _check_plan(programs: Programs, compilation: Compilation) -> None:
    """Raise `UsageError` for a plan for programs that communicate, or for another output type than StableHLO."""
    if compilation.importing.plan is None:
        return
    if compilation.importing.mesh is None:
        raise UsageError("plan= names axes of a mesh: pass it too, mesh='dp=2,tp=4'")
    if compilation.target.collectives is not Collectives.LOWERED:
        kind = compilation.options.output_type.value
        raise UsageError(f"plan= is for partitioners, which read stablehlo, and not {kind}")
    if (call := next(calls_in(programs.values()), None)) is not None:
        raise UsageError(
            f"plan= is for programs of whole tensors, and '{call.name}' communicates: this is the program of each "
            "rank. Leave plan= out, or the collectives"
        )


def _collectives(
    programs: Programs, compilation: Compilation
) -> tuple[Mapping[str, ProcessGroup], Mapping[Any, Handler]]:
    """Return the process groups of ``programs``, and what imports their collectives.

    Raises:
        UsageError: for process groups that are no groups of the mesh.
    """
    if next(calls_in(programs.values()), None) is None:
        return {}, {}
    mesh, treatment = compilation.importing.mesh, compilation.target.collectives
    if treatment is Collectives.REFUSED:
        kind = compilation.options.output_type.value
        return {}, refused_collectives(
            f"{kind} has no operations between devices: stablehlo lowers collectives, and raw and torch keep them"
        )
    if mesh is None:
        return {}, {} if treatment is Collectives.KEPT else refused_collectives(
            "the devices that it is between are not known: pass the mesh, mesh=, a DeviceMesh or 'dp=2,tp=4'"
        )
    groups = process_groups(programs.values(), Mesh.get(mesh))
    return groups, collectives_in_groups(groups, branches=treatment is Collectives.KEPT)


def _check_nothing_is_overwritten(programs: Programs, output_type: OutputType) -> None:
    for program in programs.values():
        signature = program.graph_signature
        mutated = [*mutated_state(program), *signature.user_inputs_to_mutate.values()]
        if mutated:
            raise UsageError(
                f"{output_type.value} has values and no memory to overwrite, and the program mutates "
                f"{', '.join(map(repr, sorted(mutated)))}: pass mutation='functional'"
            )


def drawn_nodes(programs: Programs) -> list[fx.Node]:
    """Return the calls whose random numbers constant folding draws."""
    nodes = [node for program in programs.values() for node in program.graph.nodes]
    return [node for node in nodes if node.target in DRAWN]


def drawing_functions(programs: Programs) -> tuple[str, ...]:
    """Return the functions of torch whose random numbers `drawn_nodes` draw, with their source lines."""
    found: dict[str, None] = {}
    for node in drawn_nodes(programs):
        called = node.meta.get("torch_fn")  # such as ("dropout_1", "function.dropout")
        function = called[1].partition(".")[2] if called else str(node.target)
        place = unsupported_node(node, "").where
        found[function + (f" (at {place})" if place else "")] = None
    return tuple(found)


def _narrowing(programs: Programs, dtypes: Dtypes) -> Iterator[str]:
    """Yield a remark for each dtype that is computed in a narrower one."""
    found: dict[tuple[torch.dtype, torch.dtype], list[fx.Node]] = {}
    for program in programs.values():
        for node, wide, narrow in computed_narrower(program, dtypes):
            found.setdefault((wide, narrow), []).append(node)
    for (wide, narrow), nodes in found.items():
        where = [place for node in nodes if (place := unsupported_node(node, "").where)]
        first = f", the first at {where[0]}" if where else ""
        count = f"{len(nodes)} values are" if len(nodes) > 1 else "a value is"
        yield f"{dtypes.name} has no {wide}: {count} computed in {narrow}{first}"
