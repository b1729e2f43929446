"""Symbolic values of single-element tensors that StableHLO computes from sizes and constants.

Conversions compute range lengths this way, in f64, which is exact up to 2^53.
"""

from __future__ import annotations

import math

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer
from fx_importer.symbolic.polynomials import Atoms, Polynomial, constant


class ScalarValues:
    """The integers in single-element 64-bit tensors. Query in program order, which bounds the recursion."""

    def __init__(self, atoms: Atoms):
        self.atoms = atoms
        self._found: dict[ir.Value, Polynomial | None] = {}

    def set_value(self, value: ir.Value, integer: Polynomial) -> None:
        """Record the integer in ``value``."""
        self._found[value] = integer

    def value_of(self, value: ir.Value) -> Polynomial | None:
        """Return the integer in ``value``, a tensor of f64 or i64; None if it is unknown."""
        if value not in self._found:
            self._found[value] = self._computed(value) if is_scalar(value.type) else None
        return self._found[value]

    def _computed(self, value: ir.Value) -> Polynomial | None:
        name = producer(value)
        if name == "stablehlo.constant":
            return _constant(value)
        if name not in _INTEGER_OPS:
            return None
        operands = [self.value_of(operand) for operand in value.owner.operands]
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands):
            return None
        match name.partition(".")[2], known:
            case "add", [a, b]:
                return a + b
            case "subtract", [a, b]:
                return a - b
            case "multiply", [a, b]:
                return a * b
            case "divide", [a, b]:
                return a.divided(b)
            case _, [a]:
                return a
            case _:
                return None


_INTEGER_OPS = {
    f"stablehlo.{name}" for name in ("add", "subtract", "multiply", "divide", "convert", "reshape", "ceil", "floor")
}


def is_scalar(kind: ir.Type) -> bool:
    """Whether ``kind`` is a tensor of one element, of f64 or of a signless or index integer of 64 bits."""
    return (
        isinstance(kind, ir.RankedTensorType)
        and kind.has_static_shape
        and all(size == 1 for size in kind.shape)
        and str(kind.element_type) in ("i64", "f64", "index")
    )


def _constant(value: ir.Value) -> Polynomial | None:
    elements = value.owner.attributes["value"]
    if not isinstance(elements, ir.DenseElementsAttr) or not elements.is_splat:
        return None
    number = elements.get_splat_value().value
    return constant(int(number)) if math.isfinite(number) and number == int(number) else None
