"""Locations as slash-separated paths of submodules, by which viewers of graphs group operations."""

from __future__ import annotations

from fx_importer.diagnostics.mlir_diagnostics import read_location
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.module_contents import replace_contents
from fx_importer.mlir.walk import operations


def with_module_paths(module: ir.Module) -> ir.Module:
    """Return a copy of ``module`` whose locations are ``"encoder/layer/0/tosa.matmul"``, without source lines.

    The last part is the name of the operation. Operations without a submodule keep their location.
    """
    copy = module.operation.clone()
    for op in operations(copy):
        frames, names = read_location(op.location)
        if names and frames:  # without frames, it names a value
            op.location = ir.Location.name(f"{names[0].replace('.', '/')}/{op.name}", context=copy.context)
    found = ir.Module.create(copy.location)
    replace_contents(found, copy)
    return found
