"""Constants of 48-bit integers, the biases of int16 convolutions, for which IREE makes wrong code."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.walk import rewrite

_BYTES = 6
_LOW_BITS = 24


@rewrite("fx-importer-extend-i48-constants", ops=("tosa.const",), emitter=LinalgOps)
def extend_i48_constants(op: ir.Operation, emit: LinalgOps) -> None:
    """Compute i48 constants with negative elements from i32 constants, whose sign IREE extends.

    IREE 3.13 stores i48 in 64 bits and fills the upper 16 bits of a constant with zeros. An element is
    ``high * 2 ** 24 + low``.
    """
    type_ = op.results[0].type
    if emit.element(type_) != "i48":
        return
    shape = [size or 0 for size in emit.shape(type_)]
    elements = _elements(op.attributes["values"])
    if all(element >= 0 for element in elements):
        return

    def constant(values: Sequence[int]) -> ir.Value:
        half = ir.DenseElementsAttr.get(np.array(list(values) * count, np.int32).reshape(shape), context=emit.context)
        return emit.op("arith.constant", [half.type], [], {"value": half}).result

    def combined(inside: LinalgOps, halves: Sequence[ir.Value]) -> Sequence[ir.Value]:
        high, low = (inside.value("arith.extsi", "i48", half) for half in halves[:2])
        factor = inside.constant_integer(2**_LOW_BITS, inside.type("i48"))
        return [inside.value("arith.addi", "i48", inside.value("arith.muli", "i48", high, factor), low)]

    count = math.prod(shape) // max(len(elements), 1)  # a splat has one element
    low = [element % 2**_LOW_BITS for element in elements]
    halves = [constant([element >> _LOW_BITS for element in elements]), constant(low)]
    (sums,) = emit.elementwise(halves, [emit.empty(shape, emit.type("i48"))], combined)
    replace(op, sums)


def _elements(values: ir.Attribute) -> list[int]:
    """Return the elements of a ``dense`` attribute of i48, which the bindings do not read; one of a splat."""
    text = str(values).partition("<")[2].rpartition(" : ")[0]
    if text.startswith('"0x'):
        data = bytes.fromhex(text.removeprefix('"0x').rstrip('">'))
        return [int.from_bytes(data[at : at + _BYTES], "little", signed=True) for at in range(0, len(data), _BYTES)]
    return [int(number) for number in re.findall(r"-?\d+", text)]
