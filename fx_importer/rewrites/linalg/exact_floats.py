"""Run int8 matmuls and convolutions in float32, which is faster in libraries and engines, except matmuls in IREE.

The results are exact: every partial sum, in any order, is an integer of magnitude at most 2^24, which float32
represents. The number of terms proves this, or the elements of a constant weight ``w``. Otherwise the weight is split
into ``16 * (w >> 4) + (w & 15)``, and the two smaller sums are exact. All other operations stay integer. The float32
weights take extra memory, four times as much as the program's int8 weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import attributes_of, producer, terminator
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.indexing_maps import CONVOLUTIONS, PRODUCTS, axes_of_product
from fx_importer.mlir.resources import resource, resource_bytes, resource_of
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.linalg.integer_convolutions import is_integer_product

_EXACT = 1 << 24
"""float32 represents all integers up to this magnitude."""
_LARGEST = 1 << 7
"""The largest magnitude of an int8."""
_Part = Callable[[np.ndarray], np.ndarray]
_SPLITS: tuple[dict[int, _Part], ...] = ({1: lambda w: w}, {16: lambda w: w >> 4, 1: lambda w: w & 15})
"""Ways to split a weight: maps the factor of each part to the part."""
_SIGNED = {"arith.extsi", "arith.muli", "arith.addi", "linalg.yield"}
"""The body of a matmul of signed integers."""
_MOVES = ("linalg.transpose", "tensor.collapse_shape", "tensor.expand_shape")


@rewrite("fx-importer-int8-matmuls-to-f32")
def int8_matmuls_to_f32(module: ir.Operation) -> None:
    """Compute int8 matmuls and convolutions with int32 results in float32 where that is exact."""
    _rewrite(module, lambda _: False)


@rewrite("fx-importer-int8-matmuls-to-f32{keep-integer-products=true}")
def other_int8_matmuls_to_f32(module: ir.Operation) -> None:
    """Like `int8_matmuls_to_f32`, except for operations that have integer kernels in the engine."""
    _rewrite(module, is_integer_product)


def _rewrite(module: ir.Operation, stays: Callable[[ir.Operation], bool]) -> None:
    for op in operations(module, {*CONVOLUTIONS, *PRODUCTS}):
        if tuple(map(LinalgOps.element, op.operands)) != ("i8", "i8", "i32"):
            continue
        body = {inner.operation.name for inner in op.regions[0].blocks[0]}
        if body != _SIGNED or stays(op):
            continue
        emit = LinalgOps.before(op)
        image, weight, begin = op.operands
        parts = _weights(emit, op, weight)
        if not parts:
            continue
        sizes = emit.sizes(begin)
        total = begin
        for factor, part in parts:
            zeros = emit.fill_with_zeros(emit.empty(sizes, emit.type("f32")))
            attributes = {k: v for k, v in attributes_of(op).items() if k != "linalg.memoized_indexing_maps"}
            name = op.name.removeprefix("linalg.")
            (product,) = emit.structured(name, [_as_float(emit, image), part], [zeros], _multiply_add, attributes)
            total = _add(emit, total, factor, product, sizes)
        op.results[0].replace_all_uses_with(total)
        op.erase()


def _weights(emit: LinalgOps, op: ir.Operation, weight: ir.Value) -> list[tuple[int, ir.Value]]:
    """Return factors and float32 weights whose scaled products add up to the result; an empty list if not exact."""
    elements = _elements(weight)
    if elements is None:
        terms = _terms(op)
        return [(1, _as_float(emit, weight))] if 0 < terms * _LARGEST * _LARGEST <= _EXACT else []
    for split in _SPLITS:
        if all(_largest_sum(op, part(elements)) * _LARGEST <= _EXACT for part in split.values()):
            return [(factor, _as_float(emit, weight, part)) for factor, part in split.items()]
    return []


def _axes(op: ir.Operation) -> tuple[str, str]:
    """Return the axes of the left and the right operand, as letters."""
    if op.name in CONVOLUTIONS:
        return CONVOLUTIONS[op.name]
    left, right, _ = axes_of_product(op) or ("", "", "")
    return left, right


def _terms(op: ir.Operation) -> int:
    """Return the number of products summed per result element; 0 if unknown."""
    _, letters = _axes(op)
    sizes = LinalgOps.shape(op.operands[1])
    if len(letters) != len(sizes):
        return 0
    return math.prod(size or 0 for size, axis in zip(sizes, letters, strict=True) if axis not in _kept(letters))


def _kept(letters: str) -> str:
    """Return the weight axes that are not summed over: filters, groups, batches, columns, depthwise channels."""
    return "fgbn" if "f" in letters or "k" in letters else "c"


def _largest_sum(op: ir.Operation, elements: np.ndarray) -> int:
    """Return the largest sum of weight magnitudes that goes into one result element."""
    _, letters = _axes(op)
    if len(letters) != elements.ndim:
        return _EXACT
    summed = tuple(position for position, axis in enumerate(letters) if axis not in _kept(letters))
    return int(np.abs(elements.astype(np.int64)).sum(summed).max(initial=0))


def _elements(value: ir.Value) -> np.ndarray | None:
    """Return the elements of an int8 constant, possibly behind data movement; None for anything else."""
    if producer(value) in _MOVES:
        op, source = value.owner, _elements(value.owner.operands[0])
        if source is None or not ir.RankedTensorType(value.type).has_static_shape:
            return None
        if producer(value) == "linalg.transpose":
            return source.transpose(tuple(ir.DenseI64ArrayAttr(op.attributes["permutation"])))
        return source.reshape(ir.RankedTensorType(value.type).shape)
    if producer(value) != "arith.constant":
        return None
    kind = ir.RankedTensorType(value.type)
    if resource_of(value.owner) is None:
        return np.array(ir.DenseIntElementsAttr(value.owner.attributes["value"])).astype(np.int8).reshape(kind.shape)
    data = resource_bytes(value.owner.attributes["value"], math.prod(kind.shape))
    return None if data is None else data.view(np.int8).reshape(kind.shape)


def _as_float(emit: LinalgOps, value: ir.Value, part: _Part | None = None) -> ir.Value:
    """Emit ``value``, or a ``part`` of a constant, in float32. Constants and constant padding are converted here."""
    kind = ir.RankedTensorType(value.type)
    to = emit.tensor(emit.shape(value), "f32")
    op = value.owner
    if producer(value) == "arith.constant" and (elements := _elements(value)) is not None:
        numbers = (part(elements) if part else elements).astype(np.float32)
        attribute = resource(numbers.reshape(-1), "integer_weight", to)
        return emit.op("arith.constant", [to], (), {"value": attribute}).result
    if producer(value) in _MOVES and _elements(value) is not None:
        source = _as_float(emit, op.operands[0], part)
        if producer(value) == "linalg.transpose":
            permutation = {"permutation": op.attributes["permutation"]}
            empty = emit.empty(kind.shape, emit.type("f32"))
            return emit.structured("transpose", [source], [empty], lambda _, arguments: arguments[:1], permutation)[0]
        return emit.op(op.name, [to], [source], attributes_of(op)).result
    if producer(value) == "tensor.pad":
        return _padded(emit, op, to)
    empty = emit.empty(emit.sizes(value), emit.type("f32"))
    return emit.elementwise([value], [empty], lambda to, arguments: [to.value("arith.sitofp", "f32", arguments[0])])[0]


def _padded(emit: LinalgOps, op: ir.Operation, to: ir.Type) -> ir.Value:
    """Emit the int8 ``tensor.pad`` ``op`` in float32."""
    source, *sizes = op.operands
    copy = emit.op("tensor.pad", [to], [_as_float(emit, source), *sizes], attributes_of(op), regions=1)
    block = emit.add_block(copy.regions[0], [emit.type("index")] * ir.RankedTensorType(to).rank)
    inside = emit.inside(block)
    added = terminator(op.regions[0].blocks[0]).operands[0]
    if producer(added) == "arith.constant":  # libraries take zeros
        number = inside.constant_scalar(ir.IntegerAttr(added.owner.attributes["value"]).value, emit.type("f32"))
    else:
        (integer,) = inside.inline_block(op.regions[0].blocks[0], list(block.arguments))
        number = inside.value("arith.sitofp", "f32", integer)
    inside.op("tensor.yield", [], [number])
    return copy.result


def _add(emit: LinalgOps, total: ir.Value, factor: int, product: ir.Value, sizes: Sequence[int | ir.Value]) -> ir.Value:
    """Emit ``total + factor * product``, in int32."""

    def body(inside: LinalgOps, arguments: Sequence[ir.Value]) -> list[ir.Value]:
        part, before, _ = arguments
        number = inside.value("arith.fptosi", "i32", part)
        scaled = inside.value("arith.muli", "i32", number, inside.constant_integer(factor, inside.type("i32")))
        return [inside.value("arith.addi", "i32", before, scaled)]

    return emit.elementwise([product, total], [emit.empty(sizes, emit.type("i32"))], body)[0]


def _multiply_add(inside: LinalgOps, elements: Sequence[ir.Value]) -> list[ir.Value]:
    left, right, total = elements
    return [inside.value("arith.addf", "f32", total, inside.value("arith.mulf", "f32", left, right))]
