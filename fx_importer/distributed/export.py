"""Export of a program that all ranks of a mesh run, from modules that are parallelized with DTensor."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.distributed.collectives import ON_MESH, axes_of_group, calls_in, group_name
from fx_importer.distributed.gradients import export_gradients
from fx_importer.distributed.local_tensors import is_dtensor, with_local_tensors
from fx_importer.distributed.mesh import Mesh, fake_process_group
from fx_importer.distributed.plan import Plan
from fx_importer.distributed.rank_operators import slices_at_run_time
from fx_importer.distributed.shards import Layout, Source, read_shards
from fx_importer.errors import UsageError, first_line
from fx_importer.frontend.torch_patches import tracing, warnings_filtered

Build = Callable[[Any], tuple[torch.nn.Module, Sequence[Any]]]
"""Takes the `DeviceMesh`, and returns the module, parallelized for this rank, and this rank's example inputs."""


@dataclass(frozen=True)
class MeshProgram:
    """The program that each rank of a mesh runs, and which part of each weight it takes."""

    program: ExportedProgram
    """Without the values of weights, which differ between ranks: lower it with ``weights="args"``."""
    mesh: Mesh
    layouts: Mapping[str, Layout]
    """By name in the state dict: for each axis of the mesh the dimension that is divided along it, or None."""

    def states(self, weights: Source, ranks: Iterable[int] | None = None) -> list[dict[str, torch.Tensor]]:
        """Return the part of ``weights`` of each of ``ranks``, by default of all, for `Lowered.caller_on_mesh`.

        Args:
            weights: a whole state dict; or the path of a safetensors file, of a folder of transformers with several and
                their index, or of a folder that `torch.distributed.checkpoint` has written. Of these, only the parts
                are read.
            ranks: the ranks of this process, where several have a part of the mesh each.

        Raises:
            UsageError: listing the weights that are missing, or have another shape; or for other ranks.
        """
        shapes = {name: tuple(tensor.shape) for name, tensor in self.program.state_dict.items()}
        chosen = range(self.mesh.size) if ranks is None else _ranks_of(self.mesh, ranks)
        return [read_shards(weights, self.layouts, shapes, self.mesh, rank) for rank in chosen]


@tracing()
def export_on_mesh(
    build: Build, mesh: Any, *, ranks: Sequence[int] | None = None, gradients: Sequence[str] | None = None
) -> MeshProgram:
    """Export the program of each of ``ranks``, and return it if it is the same.

    Where DTensor divides a whole tensor, the program computes the rank; a program that holds a slice of one rank
    otherwise is right on this rank only, and refused.

    Args:
        build: makes the module and its example inputs, once for each of ``ranks``, under a fake process group.
        mesh: a text as ``"dp=2,tp=4"``.
        ranks: the ranks whose programs are compared; by default the first and the last, which differ along all axes.
        gradients: if given, the module returns a loss, and the program also the gradients of its parameters, each
            divided as the parameter is. The axes along which ranks have different parts of the batch, and so the loss
            and the gradients are averaged, as ``DistributedDataParallel`` does; ``()`` if there are none.

    Raises:
        UsageError: if the programs differ, naming the first operator that does; if a mesh does not divide a dimension
            of a weight, or a plan names nothing; for other values of ``build`` and ranks that the mesh does not have.
    """
    axes = Mesh.get(mesh)
    chosen = (0, axes.size - 1) if ranks is None else _ranks_of(axes, ranks)
    programs = [_exported(build, axes, rank, gradients) for rank in dict.fromkeys(chosen)]
    for rank, other in zip(chosen[1:], programs[1:], strict=False):
        _check_same(programs[0].program, other.program, chosen[0], rank)
    return programs[0]


def _ranks_of(mesh: Mesh, ranks: Iterable[int]) -> tuple[int, ...]:
    chosen = tuple(ranks)
    if not chosen or not {*chosen} <= {*range(mesh.size)}:
        raise UsageError(f"ranks={list(chosen)}: name ranks of the mesh {mesh}, from 0 to {mesh.size - 1}")
    return chosen


@tracing()
def plan_on_mesh(build: Build, mesh: Any) -> Plan:
    """Return the plan of the weights of a module that is parallelized, for `fx_importer.lower` of the whole module.

    Args:
        build: makes the module, of which only the placements of parameters and buffers are read: those that
            `parallelize_module`, `fully_shard` or `distribute_tensor` chose.
        mesh: a text as ``"dp=2,tp=4"``.

    Raises:
        UsageError: if a plan names nothing, or a weight is a summand on each rank.
    """
    axes = Mesh.get(mesh)
    with _built(build, axes, 0) as (module, _, _):
        placed = {name: tensor for name, tensor in module.state_dict().items() if is_dtensor(tensor)}
        placements = {name: _placements(tensor, axes) for name, tensor in placed.items()}
    return Plan.get(placements, axes)


def _placements(tensor: Any, mesh: Mesh) -> list[Any]:
    """Return the placement of a DTensor along each axis of ``mesh``; None along those that its own mesh lacks."""
    known = dict(zip(tensor.device_mesh.mesh_dim_names, tensor.placements, strict=True))
    return [known.get(axis) for axis, _ in mesh.axes]


@contextmanager
def _built(build: Build, mesh: Mesh, rank: int) -> Iterator[tuple[torch.nn.Module, Sequence[Any], Any]]:
    """Call ``build`` as ``rank`` of ``mesh``, whose process group ends with the context."""
    from torch.distributed.device_mesh import init_device_mesh

    names, sizes = zip(*mesh.axes, strict=True)
    _forget_meshes()
    with fake_process_group(mesh.size, rank), warnings_filtered("error", ".*could not be resolved.*"):
        device_mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
        try:
            built: Any = build(device_mesh)
        except UserWarning as warning:
            sentence = str(warning).partition(" in module ")[0]
            raise UsageError(f"a plan names what the module does not have: {sentence}") from None
        if not isinstance(built, Sequence) or len(built) != 2 or not isinstance(built[1], (tuple, list)):
            raise UsageError("build returns the module and a tuple of its inputs: return module, (x,)")
        yield *built, device_mesh


def _exported(build: Build, mesh: Mesh, rank: int, gradients: Sequence[str] | None) -> MeshProgram:
    from torch.distributed.tensor._dtensor_spec import DTensorSpec

    if not pytree.is_constant_class(DTensorSpec):
        pytree.register_constant(DTensorSpec)
    with _built(build, mesh, rank) as (module, inputs, device_mesh):
        layouts = {name: _layout(name, tensor, mesh) for name, tensor in module.state_dict().items()}
        if strange := [name for name, buffer in module.named_buffers() if is_dtensor(buffer) and name not in layouts]:
            raise UsageError(f"the buffers {', '.join(map(repr, strange))} are DTensors and not in the state dict")
        of_copies = warnings_filtered("ignore", ".*LeafSpec", FutureWarning)  # torch warns of its own copies
        with of_copies, slices_at_run_time():
            if gradients is None:
                exported = _captured(module, inputs)
                _check_results(exported)
                program = with_local_tensors(exported)
            else:
                program = export_gradients(module, inputs, device_mesh, gradients)
        for node in calls_in([program]):
            name = group_name(node)
            on_axes = ON_MESH + "+".join(axes_of_group(name, node, mesh))
            node.args = tuple(
                on_axes if isinstance(argument, str) and argument == name else argument for argument in node.args
            )
            node.kwargs = {key: on_axes if key == "group_name" else value for key, value in node.kwargs.items()}
    return MeshProgram(_without_values(program), mesh, layouts)


def _captured(module: torch.nn.Module, inputs: Sequence[Any]) -> ExportedProgram:
    try:
        return torch.export.export(module, tuple(inputs))
    except (RuntimeError, AssertionError) as error:
        if not _is_of_a_mask(error):
            raise
        raise UsageError(
            "torch.export does not trace a mask that DTensor keeps, as it does of an embedding whose rows are divided "
            "(RowwiseParallel): leave the embedding whole, or divide its columns (ColwiseParallel); with gradients=, "
            f"rows can be divided. {first_line(error)}"
        ) from error


def _is_of_a_mask(error: Exception) -> bool:
    """Whether ``error`` says that a mask of DTensor's is a fake constant, or since torch 2.15 that it is gone."""
    from torch.distributed.tensor.placement_types import _MaskPartial

    frames = (frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__))
    return "fake tensor in the exported program constant" in str(error) or any(
        isinstance(frame, _MaskPartial) for frame in frames
    )


def _check_results(program: ExportedProgram) -> None:
    """Raise `UsageError` for a result that is a partial sum: each rank would return its summand."""
    returned: Any = program.graph.output_node().args[0]
    for at, node in enumerate(returned):
        value: Any = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        if is_dtensor(value) and any(placement.is_partial() for placement in value.placements):
            raise UsageError(
                f"result {at} of the module is a DTensor placed as {value.placements}: each rank would return its part "
                "of a sum; return x.full_tensor(), or x.redistribute(placements=...) with Shard or Replicate"
            )


def _forget_meshes() -> None:
    """Clear what DTensor keeps of meshes: it would use an equal one of an ended process group, and its groups."""
    from torch.distributed.tensor import DTensor, _redistribute

    DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache_clear()
    torch._C._clear_DTensor_sharding_propagator_cache()
    _redistribute._gen_transform_infos.cache_clear()


def _layout(name: str, tensor: Any, mesh: Mesh) -> Layout:
    """Return for each axis of ``mesh`` the dimension of a weight that is divided along it."""
    placements = _placements(tensor, mesh) if is_dtensor(tensor) else [None] * len(mesh.axes)
    layout: list[int | None] = []
    for (axis, _), placement in zip(mesh.axes, placements, strict=True):
        if placement is not None and not placement.is_shard() and not placement.is_replicate():
            raise UsageError(f"'{name}' is placed as {placement} along '{axis}': weights are divided or repeated")
        dim = placement.dim if placement is not None and placement.is_shard() else None
        layout.append(dim)
        along = [size for (_, size), placement in zip(mesh.axes, layout, strict=False) if placement == dim]
        if dim is not None and tensor.shape[dim] % torch.Size(along).numel():
            raise UsageError(
                f"the mesh {mesh} does not divide dimension {dim} of '{name}', of size {tensor.shape[dim]}: ranks "
                "would have parts of different sizes, and so different programs"
            )
    return tuple(layout)


def refuse_dtensors(program: ExportedProgram) -> None:
    """Raise `UsageError` for a program with weights that are DTensors, which `export_on_mesh` did not export."""
    if named := [name for name, tensor in program.state_dict.items() if is_dtensor(tensor)]:
        more = f" and {len(named) - 3} more are DTensors" if len(named) > 3 else ", DTensors"
        raise UsageError(
            f"the program has {', '.join(map(repr, named[:3]))}{more}: this rank's parts of weights, and slices that "
            "are right on this rank only. Export it with fx_importer.distributed.export_on_mesh, which compares ranks"
        )


def _without_values(program: ExportedProgram) -> ExportedProgram:
    """Leave out the values of weights, which are this rank's."""
    program._state_dict = {name: _without_value(value) for name, value in program.state_dict.items()}
    return program


def _without_value(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return torch.nn.Parameter(empty, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else empty


# --- comparison -----------------------------------------------------------------------------------------------------


def _check_same(first: ExportedProgram, other: ExportedProgram, rank: int, other_rank: int) -> None:
    """Raise `UsageError` if the programs of two ranks differ."""
    lines, others = list(_lines(first)), list(_lines(other))
    for (line, place), (different, _) in zip(lines, others, strict=False):
        if line != different:
            raise UsageError(
                f"ranks {rank} and {other_rank} have different programs: '{line}' and '{different}'"
                + (f", at {place}" if place else "")
                + ". A slice or a size of one rank is in the program: take the rank from "
                "fx_importer.distributed.group_rank, or pass each rank its own part"
            )
    if len(lines) != len(others):
        raise UsageError(f"ranks {rank} and {other_rank} have programs of {len(lines)} and {len(others)} operators")
    for name, value in first.constants.items():
        another = other.constants[name]
        if isinstance(value, torch.Tensor) and not _are_equal(value, another):
            raise UsageError(f"ranks {rank} and {other_rank} have different values of the constant '{name}'")


def _are_equal(value: torch.Tensor, another: Any) -> bool:
    """Return whether two constants are the same. Those on the meta device have types only."""
    if not isinstance(another, torch.Tensor) or value.is_meta != another.is_meta:
        return False
    if value.is_meta:
        return (value.shape, value.dtype) == (another.shape, another.dtype)
    return torch.equal(value, another)


def _lines(program: ExportedProgram) -> Iterator[tuple[str, str]]:
    """Yield a text of each node with its types, and its source line."""
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            values = [leaf for leaf in pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]
            types = ", ".join(f"{value.dtype}{list(value.shape)}" for value in values)
            yield f"{node.format_node() or node} : {types}", unsupported_node(node, "").where or ""
