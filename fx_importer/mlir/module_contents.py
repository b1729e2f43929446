"""Copying the operations of a module, and putting them in the place of another's."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir


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
