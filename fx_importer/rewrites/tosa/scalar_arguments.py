"""Numbers in the signatures of functions, where there are only tensors."""

from __future__ import annotations

from collections.abc import Iterator

from fx_importer.mlir.bindings import func_d, ir

_NUMBERS = {"!torch.int": "an int", "!torch.float": "a float", "!torch.bool": "a bool"}


def refuse_numbers(module: ir.Operation) -> None:
    """Report every number that a function takes or returns as an error."""
    for op in module.regions[0].blocks[0].operations:
        if isinstance(op, func_d.FuncOp):
            signature = op.type
            sides = (("takes", "arg_attrs", signature.inputs), ("returns", "res_attrs", signature.results))
            for verb, key, types in sides:
                found = [f"{_NUMBERS[str(type_)]}{name}" for type_, name in _numbers(op, key, types)]
                if found:
                    op.location.emit_error(
                        f"TOSA has tensors only, and '{op.name.value}' {verb} {', '.join(found)}: "
                        "make it a tensor of no axes, or leave it out"
                    )


def _numbers(function: func_d.FuncOp, key: str, types: list[ir.Type]) -> Iterator[tuple[ir.Type, str]]:
    attributes = list(ir.ArrayAttr(function.attributes[key])) if key in function.attributes else []
    for position, type_ in enumerate(types):
        if str(type_) in _NUMBERS:
            known = ir.DictAttr(attributes[position]) if attributes else {}
            name = "fx_importer.name"
            yield type_, f" ('{ir.StringAttr(known[name]).value}')" if name in known else ""
