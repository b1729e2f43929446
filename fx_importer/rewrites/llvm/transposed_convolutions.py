"""Recognition of transposed convolutions, which torch-mlir lowers to convolutions of inputs with zeros in between.

For an input of ``n`` elements along an axis, a kernel of ``k``, stride ``s``, dilation ``d``, padding ``p`` and output
padding ``o``, the convolution of stride 1 reads ``d * (k - 1) - p`` zeros, the elements at a distance of ``s``, and
``d * (k - 1) - p + o`` zeros; its weight is the given one with input and output channels exchanged and its spatial axes
reversed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, terminator
from fx_importer.mlir.indexing_maps import indexing_maps

_DESTINATIONS = ("linalg.fill", "tensor.empty")


@dataclass(frozen=True)
class Transposed:
    """A convolution, as a transposed convolution."""

    image: ir.Value
    weight: ir.Value
    """``[input channels, output channels, spatial ...]``."""
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    output_padding: tuple[int, ...]
    ops: tuple[ir.Operation, ...]
    """The operations that insert the zeros and reverse the weight, in order."""


def transposed_convolution(op: ir.Operation, dilations: Sequence[int]) -> Transposed | None:
    """Return what ``op``, of ``[n, c, spatial ...]`` and ``[f, c, spatial ...]``, computes; None if it is not one."""
    spread, kernel = op.operands[0], op.operands[1]
    if producer(spread) != "tensor.insert_slice" or producer(kernel) != "linalg.generic":
        return None
    zeros, weight = spread.owner.operands[1], _reversed(kernel.owner)
    spread_sizes, kernel_sizes = ir.ShapedType(spread.type), ir.ShapedType(kernel.type)
    if weight is None or not is_filled_with_zeros(zeros) or len(spread.owner.operands) != 2:
        return None
    image: ir.Value = spread.owner.operands[0]
    offsets, sizes, strides = (
        list(ir.DenseI64ArrayAttr(spread.owner.attributes[f"static_{name}"]))
        for name in ("offsets", "sizes", "strides")
    )
    static = all(ir.ShapedType(value.type).has_static_shape for value in (spread, image, kernel))
    if not static or list(ir.ShapedType(image.type).shape) != sizes or offsets[:2] != [0, 0] or strides[:2] != [1, 1]:
        return None
    reach = [d * (k - 1) for d, k in zip(dilations, kernel_sizes.shape[2:], strict=True)]
    padding = [r - before for r, before in zip(reach, offsets[2:], strict=True)]
    spans = [before + (n - 1) * s + 1 for before, n, s in zip(offsets[2:], sizes[2:], strides[2:], strict=True)]
    added = [size - end - before for size, end, before in zip(spread_sizes.shape[2:], spans, offsets[2:], strict=True)]
    limits = [max(s, d) for s, d in zip(strides[2:], dilations, strict=True)]
    if min(padding) < 0 or any(not 0 <= number < most for number, most in zip(added, limits, strict=True)):
        return None
    ops = (*with_destination(kernel.owner), *with_destination(zeros.owner), spread.owner)
    return Transposed(image, weight, tuple(strides[2:]), tuple(padding), tuple(added), ops)


def is_filled_with_zeros(value: ir.Value) -> bool:
    """Return whether ``value`` is a tensor that was filled with the constant 0.0."""
    if producer(value) != "linalg.fill" or producer(value.owner.operands[0]) != "arith.constant":
        return False
    number = ir.FloatAttr(value.owner.operands[0].owner.attributes["value"]).value
    return number == 0 and math.copysign(1, number) == 1


def with_destination(op: ir.Operation) -> list[ir.Operation]:
    """Return ``op``, after the operations that define its destination, from `tensor.empty` on."""
    if op.name == "tensor.empty":
        return [op]
    destination = op.operands[len(op.operands) - 1]
    return [*with_destination(destination.owner), op] if producer(destination) in _DESTINATIONS else [op]


def _reversed(op: ir.Operation) -> ir.Value | None:
    """Return the tensor ``[c, f, spatial ...]`` whose elements ``op`` returns as ``[f, c, reversed spatial ...]``."""
    kind = ir.ShapedType(op.results[0].type)
    (element,) = terminator(op.regions[0].blocks[0]).operands
    first, *others = indexing_maps(op)
    is_read = producer(element) == "tensor.extract" and element.owner.operands[0].owner != op.regions[0].blocks[0]
    if others or not is_read or first != ir.AffineMap.get_identity(kind.rank, op.context):
        return None
    source, *indices = element.owner.operands
    read = [_loop(index, kind.shape) for index in indices]
    wanted = [(1, False), (0, False), *((axis, True) for axis in range(2, kind.rank))]
    return source if read == wanted else None


def _loop(value: ir.Value, sizes: Sequence[int]) -> tuple[int, bool] | None:
    """Return the loop that ``value`` is the index of, and whether it is that from the end; None of others."""
    if producer(value) == "linalg.index":
        return ir.IntegerAttr(value.owner.attributes["dim"]).value, False
    if producer(value) != "arith.subi" or producer(value.owner.operands[0]) != "arith.constant":
        return None
    last = ir.IntegerAttr(value.owner.operands[0].owner.attributes["value"]).value
    inner = _loop(value.owner.operands[1], sizes)
    return (inner[0], True) if inner and not inner[1] and last == sizes[inner[0]] - 1 else None
