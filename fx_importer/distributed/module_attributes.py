"""Attributes of modules and of collectives for the devices that they run on."""

from __future__ import annotations

from fx_importer.distributed.mesh import Mesh
from fx_importer.mlir.bindings import ir

REPLICA_GROUPS = "fx_importer.replica_groups"
"""The groups of devices of a collective of torch."""
MESH_AXES = "fx_importer.mesh_axes"
"""The axes of the mesh along which the devices of a group differ."""
CHANNEL = "fx_importer.channel"
"""A number that no other collective of the module has."""

_MESH, _PARTITIONS, _REPLICAS = "fx_importer.mesh", "mhlo.num_partitions", "mhlo.num_replicas"


def set_mesh(module: ir.Module, mesh: Mesh, *, lowered: bool) -> None:
    """Say in ``module`` which mesh it runs on; if it is ``lowered``, as XLA reads it too."""
    attributes, context = module.operation.attributes, module.context
    attributes[_MESH] = ir.StringAttr.get(str(mesh), context)
    if lowered:
        i32 = ir.IntegerType.get_signless(32, context)
        attributes[_PARTITIONS] = ir.IntegerAttr.get(i32, mesh.size)
        attributes[_REPLICAS] = ir.IntegerAttr.get(i32, 1)


def remove_mesh(module: ir.Module) -> None:
    """Let ``module`` be a program of one device."""
    for name in (_MESH, _PARTITIONS, _REPLICAS):
        if name in module.operation.attributes:
            del module.operation.attributes[name]


def mesh_of(module: ir.Module) -> Mesh | None:
    """Return the mesh that ``module`` runs on; None if it is a program of one device."""
    attributes = module.operation.attributes
    return Mesh.get(ir.StringAttr(attributes[_MESH]).value) if _MESH in attributes else None
