"""Rejection of scalar arguments and results, which TOSA does not have."""

from __future__ import annotations

from collections.abc import Iterator

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.walk import rewrite

_SCALARS = {"!torch.int": "an int", "!torch.float": "a float", "!torch.bool": "a bool"}


@rewrite("fx-importer-reject-scalar-arguments")
def reject_scalar_arguments(module: ir.Operation) -> None:
    """Report an error for each function that takes or returns scalars."""
    for op in module.regions[0].blocks[0].operations:
        if isinstance(op, func_d.FuncOp):
            signature = op.type
            sides = (("takes", "arg_attrs", signature.inputs), ("returns", "res_attrs", signature.results))
            for verb, key, types in sides:
                scalars = [f"{_SCALARS[str(type_)]}{name}" for type_, name in _scalars(op, key, types)]
                if scalars:
                    op.location.emit_error(
                        f"TOSA has tensors only, and '{op.name.value}' {verb} {', '.join(scalars)}: "
                        "make it a tensor of no axes, or leave it out"
                    )


def _scalars(function: func_d.FuncOp, key: str, types: list[ir.Type]) -> Iterator[tuple[ir.Type, str]]:
    attributes = list(ir.ArrayAttr(function.attributes[key])) if key in function.attributes else []
    for position, type_ in enumerate(types):
        if str(type_) in _SCALARS:
            known = ir.DictAttr(attributes[position]) if attributes else {}
            name = "fx_importer.name"
            yield type_, f" ('{ir.StringAttr(known[name]).value}')" if name in known else ""
