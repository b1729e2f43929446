"""Modules with other element types or sizes, to try whether a program would lower with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, replace
from fx_importer.mlir.walk import operations


def type_variants(text: str, context: ir.Context, *, static_sizes: bool) -> Iterator[tuple[str, str]]:
    """Yield variants of the module ``text``, in the torch dialect, each with a description of the change.

    There is a variant for each change of types that the module has: float32 instead of float64 or of half precision,
    and, with ``static_sizes``, size 2 instead of every dynamic dimension. Constants are converted to the changed types;
    a module whose constants cannot be is left out.
    """
    changes = [
        ("float32 instead of float64", _elements("f64")),
        ("float32 instead of half precision", _elements("b?f16")),
        ("complex64 instead of complex128", _elements("f64", "complex<")),
    ]
    if static_sizes:
        changes.append(("static sizes, without dynamic_shapes", lambda kind: kind.replace("?", "2")))
    for description, change in changes:
        changed = _with_types(text, context, change)
        if changed is not None:
            yield changed, description


def _elements(old: str, inside: str = "") -> Callable[[str], str]:
    """Return a function that replaces an element type by f32 in the text of a type; alone, or ``inside`` another."""
    pattern = re.compile(rf"(?<={inside}){old}(?=>)" if inside else rf"(?<=[,x]){old}(?=[>,])")
    return lambda kind: pattern.sub("f32", kind)


def _with_types(text: str, context: ir.Context, change: Callable[[str], str]) -> str | None:
    """Return the module ``text`` with the text of all types changed; None if nothing changes, or cannot be."""
    module = ir.Module.parse(text, context)
    differs = False
    unreadable: dict[ir.Operation, str] = {}
    """Complex literals, and the text of their new values."""

    def changed(kind: ir.Type) -> ir.Type:
        nonlocal differs
        new = ir.Type.parse(change(str(kind)), context)
        differs |= new != kind
        return new

    def change_types(op: ir.Operation) -> None:
        for position, name in enumerate(op.attributes):
            try:
                value = op.attributes[name]
            except TypeError:  # a complex ``dense``, which the bindings cannot read
                number, _, kind = str(op.attributes[position]).partition("=")[2].removesuffix(")").rpartition(" : ")
                unreadable[op] = f"{number} : {changed(ir.Type.parse(kind))}"
                continue
            if isinstance(value, ir.TypeAttr):
                op.attributes[name] = ir.TypeAttr.get(changed(value.value))
            elif isinstance(value, ir.DenseElementsAttr) and (new := changed(value.type)) != value.type:
                op.attributes[name] = _constant(value, ir.ShapedType(new))
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_type(changed(argument.type))
        for result in op.results:
            result.set_type(changed(result.type))

    with context, ir.Location.unknown():
        try:
            for op in operations(module.operation):
                change_types(op)
            for op, value in unreadable.items():
                replace(op, Emitter.before(op).parsed(f"torch.vtensor.literal({value}) : {op.results[0].type}").result)
            if not differs or not module.operation.verify():
                return None
        except (ir.MLIRError, ValueError):  # a constant that the new type cannot hold, or types that contradict
            return None
    return module.operation.get_asm(use_local_scope=True, assume_verified=True)


def _constant(value: ir.DenseElementsAttr, kind: ir.ShapedType) -> ir.Attribute:
    """Return ``value``, a constant of floats, with the element type of ``kind``."""
    if value.is_splat:
        return ir.DenseElementsAttr.get_splat(
            kind, ir.FloatAttr.get(kind.element_type, ir.FloatAttr(value.get_splat_value()).value)
        )
    elements = [ir.FloatAttr.get(kind.element_type, each) for each in ir.DenseFPElementsAttr(value)]
    return ir.DenseElementsAttr.get(elements, kind)
