"""Division of a program of whole tensors among the devices of a mesh, by attributes that a partitioner reads."""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.distributed import Mesh
from fx_importer.distributed.module_attributes import set_mesh
from fx_importer.distributed.shardings import set_shardings
from fx_importer.manifest import Function
from fx_importer.mlir.bindings import ir, passmanager
from fx_importer.rewrites import fold_stablehlo_no_ops, split_batch_dimensions


def divide(module: ir.Module, mesh: Mesh, functions: Mapping[str, Function]) -> None:
    """Write the shardings of ``functions`` to ``module``, in StableHLO, in a form that a partitioner can divide."""
    split_batch_dimensions.run(module.operation)
    fold_stablehlo_no_ops.run(module.operation)
    passmanager.PassManager.parse("builtin.module(cse)", module.context).run(module.operation)  # drops what is dead
    set_mesh(module, mesh, lowered=True)
    set_shardings(module, mesh, functions)
