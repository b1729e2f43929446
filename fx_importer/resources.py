"""Reading what a ``dense_resource`` holds, for which the bindings have no call."""

from __future__ import annotations

import re

from fx_importer.bindings import ir

_SMALLEST = 1024
"""In bytes. A smaller resource cannot be told from the rest of the bytecode by its size."""


def resource_of(constant: ir.Operation, name: str = "value") -> ir.Attribute | None:
    """Return the attribute ``name`` of ``constant`` if it is a ``dense_resource``."""
    try:
        value = constant.attributes[name]  # a TypeError is for a complex ``dense``, which the bindings do not know
    except TypeError:
        return None
    return value if is_resource(value) else None


def is_resource(value: ir.Attribute) -> bool:
    try:
        ir.DenseResourceElementsAttr(value)  # the class of ``value`` itself does not tell
    except ValueError:
        return False
    return True


def resources_in(module: ir.Operation) -> list[tuple[ir.Operation, str, ir.Attribute]]:
    """Return every attribute in ``module`` that is a ``dense_resource``, in order: its operation, its name, itself."""
    found: list[tuple[ir.Operation, str, ir.Attribute]] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        for name in op.attributes:
            if value := resource_of(op, name):
                found.append((op, name, value))
        return ir.WalkResult.ADVANCE

    module.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


class _Chunks:
    """A file that keeps the pieces of one size that are written to it."""

    def __init__(self, size: int):
        self.size = size
        self.found: list[bytes] = []

    def write(self, data: bytes) -> None:
        if len(data) == self.size:
            self.found.append(data)


def resource_bytes(value: ir.Attribute, size: int) -> bytes | None:
    """Return the ``size`` bytes of the resource ``value``, or None if it is not as large as that.

    In bytecode, each resource is written in one piece, and the rest of a module that holds nothing else is small.
    """
    holder = ir.Module.create(ir.Location.unknown(value.context))
    holder.operation.attributes["value"] = value
    if size >= _SMALLEST:
        chunks = _Chunks(size)
        holder.operation.write_bytecode(chunks)
        return chunks.found[0] if len(chunks.found) == 1 else None
    # A small one is cheap to spell: hexadecimal digits, of which the first four bytes are the alignment.
    digits = re.search(r': "0x([0-9A-F]*)"', holder.operation.get_asm())
    data = bytes.fromhex(digits[1])[4:] if digits else b""
    return data if len(data) == size else None
