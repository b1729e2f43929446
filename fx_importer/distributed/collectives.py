"""The functional collective operators of torch, and the process groups that a program's calls name."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.distributed.mesh import Mesh
from fx_importer.distributed.rank_operators import permute_operator, rank_operator
from fx_importer.errors import UsageError
from fx_importer.fx_graph.operators import Namespace
from fx_importer.manifest import ProcessGroup

c10d: Any = Namespace("_c10d_functional")
c10d_autograd: Any = Namespace("_c10d_functional_autograd")
dtensor: Any = Namespace("_dtensor")

ON_MESH = "mesh:"
"""The prefix of the names of process groups that are axes of the mesh, ``mesh:dp+tp``, in programs exported on one."""

COLLECTIVES = frozenset(
    (
        c10d.all_reduce.default,
        c10d.all_reduce_coalesced.default,
        c10d.all_gather_into_tensor.default,
        c10d.all_gather_into_tensor_coalesced.default,
        c10d.reduce_scatter_tensor.default,
        c10d.reduce_scatter_tensor_coalesced.default,
        c10d.all_to_all_single.default,
        c10d.broadcast.default,
        c10d_autograd.all_gather_into_tensor.default,
        c10d_autograd.reduce_scatter_tensor.default,
        c10d_autograd.all_to_all_single.default,
        dtensor.shard_dim_alltoall.default,
        permute_operator._opoverload,
        rank_operator._opoverload,
    )
)
"""The operators that communicate, or depend on the rank. The last argument of each is the name of a process group."""


def calls_in(programs: Iterable[ExportedProgram]) -> Iterator[fx.Node]:
    """Yield the calls of collectives in ``programs``, including those in graphs of higher-order operators."""
    for program in programs:
        for module in program.graph_module.modules():
            if isinstance(module, fx.GraphModule):
                yield from (node for node in module.graph.nodes if node.target in COLLECTIVES)


def group_name(node: fx.Node) -> Any:
    """Return the name of the process group of a call of a collective."""
    return node.kwargs.get("group_name", node.args[-1] if node.args else None)


def process_groups(programs: Iterable[ExportedProgram], mesh: Mesh) -> Mapping[str, ProcessGroup]:
    """Return the process groups that ``programs`` use, by name, as groups along axes of ``mesh``.

    torch knows of each group only the ranks of this process's own. The axes of the mesh say what the groups of the
    other ranks are.

    Raises:
        UsageError: if a group is not known in this process, or is not a group along axes of ``mesh``.
    """
    groups: dict[str, ProcessGroup] = {}
    for node in calls_in(programs):
        name = group_name(node)
        if not isinstance(name, str):
            raise UsageError(f"'{node.name}' has the process group {name!r}: only named ones can be lowered")
        if name not in groups:
            axes = axes_of_group(name, node, mesh)
            groups[name] = ProcessGroup(axes, mesh.groups(axes))
    return groups


def axes_of_group(name: str, node: fx.Node, mesh: Mesh) -> tuple[str, ...]:
    """Return the axes of ``mesh`` along which the process group ``name`` lies, which the call ``node`` uses.

    Raises:
        UsageError: if the group is not known in this process, or is not a group along axes of ``mesh``.
    """
    if name.startswith(ON_MESH):
        axes = tuple(filter(None, name.removeprefix(ON_MESH).split("+")))
        if unknown := [axis for axis in axes if axis not in dict(mesh.axes)]:
            raise UsageError(f"'{node.name}' communicates along {', '.join(unknown)}, which {mesh} does not have")
        return axes
    ranks = _ranks(name)
    axes = mesh.axes_of(ranks)
    if axes is None:
        raise UsageError(
            f"the process group '{name}', which '{node.name}' uses, has the ranks {ranks}: along no axes of the mesh "
            f"{mesh} is this a group"
        )
    return axes


def _ranks(name: str) -> list[int]:
    """Return the ranks of the process group ``name`` of this process. Raises `UsageError` if there is none."""
    try:
        distributed: Any = importlib.import_module("torch.distributed.distributed_c10d")
        group = distributed._resolve_process_group(name)
        return list(torch.distributed.get_process_group_ranks(group))
    except (ImportError, RuntimeError, ValueError, LookupError) as error:
        raise UsageError(
            f"the program communicates in the process group '{name}', which is not in this process: lower the program "
            "where its mesh was made, for example with torch.distributed's 'fake' backend"
        ) from error
