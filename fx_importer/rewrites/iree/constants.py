"""Constants that IREE does not compile as resources."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.resources import byte_size, replace_constants, resource_bytes, resources_in
from fx_importer.mlir.walk import rewrite

_INLINED = 256
"""IREE copies constants of so many bytes, at most, into kernels."""


@rewrite("fx-importer-inline-bf16-constants")
def inline_bf16_constants(module: ir.Operation) -> None:
    """Replace the resources of small bfloat16 constants with elements in the module.

    IREE 3.13 stores bfloat16 as integers in kernels, and leaves the type of a resource there, which does not compile.
    """
    replace_constants(resources_in(module), _with_elements)


def _with_elements(value: ir.Attribute) -> ir.Attribute | None:
    kind = ir.RankedTensorType(value.type)
    if str(kind.element_type) != "bf16" or not 0 < byte_size(value) <= _INLINED:
        return None
    data = resource_bytes(value, byte_size(value))
    return None if data is None else ir.Attribute.parse(f'dense<"0x{data.tobytes().hex()}"> : {kind}', kind.context)
