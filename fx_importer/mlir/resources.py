"""Names and bytes of ``dense_resource`` attributes, which the bindings do not expose."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

import numpy as np

from fx_importer.mlir.bindings import ir

_SMALLEST = 1024
"""In bytes. A smaller resource cannot be found in the bytecode by its size."""

_SHARED: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()
"""Arrays that contexts own, by the address of the attribute. They have no other reference, and end with the context."""


def resource(data: np.ndarray, name: str, type_: ir.Type) -> ir.Attribute:
    """Return ``data`` as a ``dense_resource`` called ``name``, without copying it: the context keeps it alive."""
    shared = data.view()
    made = ir.DenseResourceElementsAttr.get_from_buffer(shared, name, type_, context=type_.context)
    _SHARED[hash(made)] = shared
    return made


def resource_of(constant: ir.Operation, name: str = "value") -> ir.Attribute | None:
    """Return the attribute ``name`` of ``constant`` if it is a ``dense_resource``."""
    value = _attribute(constant, name)
    return value if value is not None and is_resource(value) else None


def elided_resource(key: str, type_: ir.Type) -> ir.Attribute:
    """Return a ``dense_resource`` of ``type_`` without data, named ``key``.

    MLIR adds a number to the name if the context has a resource of that name: `key_of` returns the actual one.
    """
    escaped = "".join(chr(byte) if chr(byte) in _PLAIN else f"\\{byte:02X}" for byte in key.encode())
    return ir.Attribute.parse(f'dense_resource<"{escaped}"> : {type_}', type_.context)


def key_of(resource: ir.Attribute) -> str:
    """Return the name of a ``dense_resource``."""
    parsed = re.match(r'dense_resource<(?:"([^"]*)"|([^>]*))>', str(resource))
    assert parsed
    if parsed[2] is not None:
        return parsed[2]
    raw = re.sub(rb"\\(\\|[0-9A-F]{2})", _unescaped, parsed[1].encode())
    return raw.decode()


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return escape[1] if escape[1] == b"\\" else bytes.fromhex(escape[1].decode())


_PLAIN = {chr(code) for code in range(32, 127)} - {'"', "\\"}


def is_resource(value: ir.Attribute) -> bool:
    """Whether ``value`` is a ``dense_resource``."""
    if type(value) is not ir.Attribute:  # the bindings know no class of resources that they return
        return isinstance(value, ir.DenseResourceElementsAttr)
    try:
        ir.DenseResourceElementsAttr(value)
    except ValueError:
        return False
    return True


AttributeRef = tuple[ir.Operation, str, ir.Attribute]
"""An operation, the name of an attribute of it, and the attribute."""


def resources_in(module: ir.Operation) -> list[AttributeRef]:
    """Return every attribute of an operation in ``module`` that is a ``dense_resource``, in order."""
    return _attributes_where(module, is_resource)


def constants_in(module: ir.Operation) -> list[AttributeRef]:
    """Return every attribute of an operation in ``module`` that is a tensor and no splat, in order."""
    return _attributes_where(
        module,
        lambda value: is_resource(value) or (isinstance(value, ir.DenseElementsAttr) and not value.is_splat),
    )


def replace_constants(
    constants: Iterable[AttributeRef], replacement: Callable[[ir.Attribute], ir.Attribute | None]
) -> None:
    """Replace attributes by the results of ``replacement``, called once for each value; None keeps the attribute."""
    made: dict[ir.Attribute, ir.Attribute | None] = {}
    for op, name, value in constants:
        if value not in made:
            made[value] = replacement(value)
        new = made[value]
        if new is not None:
            op.attributes[name] = new


def byte_size(constant: ir.Attribute) -> int:
    """Return the size of the elements of ``constant`` in bytes."""
    kind = ir.ShapedType(constant.type)
    return math.prod(kind.shape) * _element_bytes(kind.element_type)


def _element_bytes(element: ir.Type) -> int:
    if isinstance(element, ir.ComplexType):
        return 2 * _element_bytes(element.element_type)
    return max(1, getattr(element, "width", 8) // 8)


def _attributes_where(module: ir.Operation, wanted: Callable[[ir.Attribute], bool]) -> list[AttributeRef]:
    attributes: list[AttributeRef] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        for name in op.attributes:
            value = _attribute(op, name)
            if value is not None and wanted(value):
                attributes.append((op, name, value))
        return ir.WalkResult.ADVANCE

    module.walk(visit, ir.WalkOrder.PRE_ORDER)
    return attributes


def _attribute(op: ir.Operation, name: str) -> ir.Attribute | None:
    try:
        return op.attributes[name]
    except TypeError:  # a complex ``dense``, which the bindings cannot read
        return None


class _Chunks:
    """A file that keeps the chunks of one size that are written to it."""

    def __init__(self, size: int):
        self.size = size
        self.found: list[bytes] = []

    def write(self, data: bytes) -> None:
        if len(data) == self.size:
            self.found.append(data)


def address_of(value: ir.Attribute) -> int | None:
    """Return the address of the data of a resource that `resource` made; None for others."""
    shared = _SHARED.get(hash(value))
    return None if shared is None else int(shared.ctypes.data)


def has_data(value: ir.Attribute) -> bool:
    """Whether the resource ``value`` has data. It takes as long as printing it."""
    holder = ir.Module.create(ir.Location.unknown(value.context))
    holder.operation.attributes["value"] = value
    return "dialect_resources" in holder.operation.get_asm()


def resource_bytes(value: ir.Attribute, size: int) -> np.ndarray | None:
    """Return the ``size`` bytes of the resource ``value``, read-only; None if it has another size.

    They are not copied if `resource` made it. Otherwise they are read from the bytecode of a module that has no other
    content, where each resource is one chunk.
    """
    shared = _SHARED.get(hash(value))
    if shared is not None and shared.base is not None and shared.nbytes == size:
        return shared.base.reshape(-1).view(np.uint8)
    holder = ir.Module.create(ir.Location.unknown(value.context))
    holder.operation.attributes["value"] = value
    if size >= _SMALLEST:
        chunks = _Chunks(size)
        holder.operation.write_bytecode(chunks)
        return np.frombuffer(chunks.found[0], np.uint8) if len(chunks.found) == 1 else None
    # A small one is cheap to print: hexadecimal digits; the first four bytes are the alignment.
    digits = re.search(r': "0x([0-9A-F]*)"', holder.operation.get_asm())
    data = bytes.fromhex(digits[1])[4:] if digits else b""
    return np.frombuffer(data, np.uint8) if len(data) == size else None
