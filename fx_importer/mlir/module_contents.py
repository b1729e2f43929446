"""Copying the operations of a module into another; locations of operations as paths of submodules."""

from __future__ import annotations

from fx_importer.diagnostics.mlir_diagnostics import read_location
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations


def replace_contents(module: ir.Module, new: ir.Operation) -> None:
    """Move the operations and attributes of ``new``, a module of the same context, to ``module``, in place of its own.

    ``module`` keeps its location. ``new`` is left empty.
    """
    for op in list(module.body.operations):
        op.erase()
    for op in list(new.regions[0].blocks[0].operations):
        module.body.append(op)
    attributes = module.operation.attributes
    for name in list(attributes):
        del attributes[name]
    for name in new.attributes:
        attributes[name] = new.attributes[name]


def copy_module(module: ir.Operation) -> ir.Module:
    """Return a module of the same context with copies of the operations of ``module``, without its attributes."""
    copy = ir.Module.create(ir.Location.unknown(module.context))
    for op in module.regions[0].blocks[0].operations:
        copy.body.append(op.clone())
    return copy


def with_module_paths(module: ir.Module) -> ir.Module:
    """Return a copy of ``module`` whose locations are ``"encoder/layer/0/tosa.matmul"``, without source lines.

    The last part is the name of the operation. Operations without a submodule keep their location.
    """
    copy = module.operation.clone()
    for op in operations(copy):
        frames, names = read_location(op.location)
        if names and frames:  # without frames, it names a value
            op.location = ir.Location.name(f"{names[0].replace('.', '/')}/{op.name}", context=copy.context)
    wrapped = ir.Module.create(copy.location)
    replace_contents(wrapped, copy)
    return wrapped
