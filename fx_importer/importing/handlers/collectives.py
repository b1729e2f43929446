"""Collective operators: `torch.operator` with attributes for the groups of devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from fx_importer.distributed.collectives import COLLECTIVES, group_name
from fx_importer.distributed.module_attributes import CHANNEL, MESH_AXES, REPLICA_GROUPS
from fx_importer.importing.handlers.schema_operators import import_overload
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.manifest import ProcessGroup
from fx_importer.mlir.bindings import ir

CollectiveHandler = Callable[[fx.Node, NodeBuilder], "ir.Value | Sequence[ir.Value]"]


def refused_collectives(reason: str) -> dict[Any, CollectiveHandler]:
    """Return handlers of collectives that refuse every call with ``reason``."""

    def refuse(node: fx.Node, build: NodeBuilder) -> Sequence[ir.Value]:
        raise UnsupportedNodeError(reason)

    return dict.fromkeys(COLLECTIVES, refuse)


def collectives_in_groups(groups: Mapping[str, ProcessGroup], *, branches: bool) -> dict[Any, CollectiveHandler]:
    """Return handlers of collectives that attach the devices of their process groups, one of ``groups``.

    Unless ``branches``, calls in branches and loops are refused: devices that took different branches would wait for
    each other forever.
    """

    channels = itertools.count(1)

    def convert(node: fx.Node, build: NodeBuilder) -> ir.Value | Sequence[ir.Value]:
        if not branches and build.point.block.owner.operation.name != "func.func":
            raise UnsupportedNodeError(
                "it is in a branch or a loop, where devices that take different branches would wait for each other "
                "forever: communicate before or after it"
            )
        results: Any = import_overload(node, build)
        group = groups[group_name(node)]
        op = (results[0] if isinstance(results, list) else results).owner.operation
        if op.name != "torch.operator":  # a list of tensors, taken apart
            op = op.operands[0].owner.operation
        devices = torch.tensor(group.replica_groups, dtype=torch.int64).numpy()
        i64 = ir.IntegerType.get_signless(64, op.context)
        op.attributes[REPLICA_GROUPS] = ir.DenseElementsAttr.get(devices, type=i64, context=op.context)
        axes = [ir.StringAttr.get(axis, op.context) for axis in group.axes]
        op.attributes[MESH_AXES] = ir.ArrayAttr.get(axes, op.context)
        op.attributes[CHANNEL] = ir.IntegerAttr.get(i64, next(channels))
        return results

    return dict.fromkeys(COLLECTIVES, convert)
