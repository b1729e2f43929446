"""Meshes of devices in an import: process groups, handlers of collectives, and plans for programs of whole tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fx_importer.compiler.compilation import Compilation, Programs
from fx_importer.distributed import Mesh, Plan
from fx_importer.distributed.collectives import calls_in, process_groups
from fx_importer.distributed.module_attributes import set_mesh
from fx_importer.errors import UsageError
from fx_importer.importing import ImportResult
from fx_importer.importing.handlers.collectives import collectives_in_groups, refused_collectives
from fx_importer.importing.handlers.higher_order import Handler
from fx_importer.manifest import Manifest, ProcessGroup
from fx_importer.options import ImportOptions, Weights
from fx_importer.targets.target import Collectives


def on_mesh(imported: ImportResult, groups: Mapping[str, ProcessGroup], compilation: Compilation) -> ImportResult:
    """Return ``imported`` with the mesh of the options, if any, in its module, and the shardings of the plan.

    Raises:
        UsageError: if the plan does not fit the programs.
    """
    options, collectives = compilation.importing, compilation.target.collectives
    if options.mesh is None or collectives is Collectives.REFUSED:
        return imported
    mesh = Mesh.get(options.mesh)
    set_mesh(imported.module, mesh, lowered=collectives is Collectives.LOWERED)
    manifest = replace(imported.manifest, mesh=dict(mesh.axes), process_groups=groups)
    return replace(imported, manifest=manifest if options.plan is None else _sharded(manifest, mesh, options))


def check_plan(programs: Programs, compilation: Compilation) -> None:
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


def collectives_of(
    programs: Programs, compilation: Compilation
) -> tuple[Mapping[str, ProcessGroup], Mapping[Any, Handler]]:
    """Return the process groups of ``programs``, and the handlers that import their collectives.

    Raises:
        UsageError: for process groups that are not groups of the mesh.
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


def _sharded(manifest: Manifest, mesh: Mesh, options: ImportOptions) -> Manifest:
    """Return ``manifest`` with the shardings of the plan in its functions. Raises `UsageError` if it does not fit."""
    try:
        return replace(manifest, functions=Plan.get(options.plan, mesh).sharded(manifest.functions, mesh))
    except UsageError as error:
        hint = "" if options.weights is Weights.ARGS else ". Weights are divided with weights='args'"
        raise UsageError(f"{error}{hint}") from None
