"""Products of a few rows, as the steps of recurrent networks and of language models have, in vector registers.

A library spends more on a product with a small weight than its arithmetic takes, and reads a large one of one row more
slowly than memory can be read. Each thread computes columns of the result, and the order of each sum depends on the
sizes only: results do not depend on the number of threads.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from fx_importer.execution.jit.library_kernels import Product
from fx_importer.execution.jit.parallel_loops import TILES
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit_loops import LoopEmitter

MOST_ROWS = 32
"""Rows of the left matrix up to which this is faster than a library, with a weight ``[k, n]``."""
LARGEST_WEIGHT = 1 << 18
"""In float32 elements, a megabyte: larger ones do not stay in the cache of a processor from call to call."""
MOST_ROWS_OF_DOTS = 7
"""Rows up to which this is faster than a library, with a weight ``[n, k]`` of any size."""
_MOST_DOTS = 8
"""Rows of a weight ``[n, k]`` that are read at the same time: of 4 a processor reads a fifth less in a second."""
_SHARED_WORK = 1 << 18
"""The number of multiplications from which threads share a product."""
_REGISTERS = {"AVX512": (16, 32), "AVX2": (8, 16)}
"""Floats of a vector, and registers of vectors, by PyTorch's name of the instructions."""


@functools.cache
def _registers() -> tuple[int, int]:
    return _REGISTERS.get(torch.backends.cpu.get_cpu_capability(), (0, 0))


def computes_rows(weight: str, rows: int, inner: int, columns: int) -> bool:
    """Return whether `define_row_product` computes a product of float32 of these static sizes.

    ``weight`` has the axes of the right matrix, ``kn`` or ``nk``.
    """
    lanes, _ = _registers()
    if not lanes or min(rows, inner, columns) < 1:  # a dynamic size is negative
        return False
    if weight == "nk":
        return rows <= MOST_ROWS_OF_DOTS and inner % lanes == 0
    return rows <= MOST_ROWS and inner * columns <= LARGEST_WEIGHT and columns % lanes == 0


def define_row_product(function: func_d.FuncOp, product: Product) -> bool:
    """Replace ``function``, on buffers ``[m, k]``, a weight and ``[m, n]``; return False if it takes others."""
    kinds = [each for each in function.type.inputs if isinstance(each, ir.MemRefType)]
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(2, function.context))
    if len(kinds) != len(function.type.inputs) or any(each.layout != identity for each in kinds):
        return False
    inside, buffers = LoopEmitter.before(function.operation).define_function(function.name.value, kinds)
    emit = _emit_dots if product.right == "nk" else _emit_columns
    emit(inside, buffers, product.accumulate)
    inside.op("func.return", [])
    function.operation.erase()
    return True


def _tiles(emit: LoopEmitter, begin: int, count: int, tile: int, work: int) -> tuple[LoopEmitter, ir.Value]:
    """Emit a loop over ``count`` columns from ``begin`` on, ``tile`` at once; return its body and the first of them.

    Threads share it if the product has ``work`` multiplications enough.
    """
    attributes = {TILES: ir.UnitAttr.get(emit.context)} if work >= _SHARED_WORK else {}
    inside, number = emit.parallel_loop(count // tile, attributes)
    return inside, inside.index_op("addi", begin, inside.index_op("muli", number, tile))


def _emit_dots(emit: LoopEmitter, buffers: Sequence[ir.Value], accumulate: bool) -> None:
    """Emit products of rows of the left matrix and of the weight ``[n, k]``, each with a vector of partial sums."""
    (rows, inner), (columns, _) = (ir.MemRefType(each.type).shape for each in buffers[:2])
    _, registers = _registers()
    block = min(registers // 2 // rows, _MOST_DOTS)
    full = columns // block * block
    for begin, count, tile in ((0, full, block), (full, columns - full, 1)):
        if count:
            inside, column = _tiles(emit, begin, count, tile, rows * inner * count)
            numbers = [inside.index_op("addi", column, at) for at in range(tile)]
            _emit_block_of_dots(inside, buffers, rows, numbers, accumulate)


def _emit_block_of_dots(
    emit: LoopEmitter, buffers: Sequence[ir.Value], rows: int, columns: Sequence[ir.Value], accumulate: bool
) -> None:
    """Emit the elements of the result in all rows and ``columns``."""
    left, right, result = buffers
    lanes, _ = _registers()
    inner = ir.MemRefType(left.type).shape[1]
    vector = ir.VectorType.get([lanes], ir.F32Type.get(emit.context), loc=emit.location)
    places = [(emit.index(row), column) for row in range(rows) for column in columns]
    zeros = emit.value("vector.broadcast", vector, emit.constant_scalar(0.0, vector.element_type))

    def body(deep: LoopEmitter, k: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
        weights = [deep.value("vector.load", vector, right, column, k) for column in columns]
        factors = [deep.value("vector.load", vector, left, deep.index(row), k) for row in range(rows)]
        pairs = [(factor, weight) for factor in factors for weight in weights]
        return [deep.value("vector.fma", vector, *pair, sum_) for pair, sum_ in zip(pairs, carried, strict=True)]

    sums = emit.loop(0, inner, lanes, [zeros] * len(places), body)
    add = {
        "kind": ir.Attribute.parse("#vector.kind<add>", emit.context),
        "fastmath": ir.Attribute.parse("#arith.fastmath<reassoc>", emit.context),
    }
    for place, sum_ in zip(places, sums, strict=True):
        element = emit.op("vector.reduction", ["f32"], [sum_], add).result
        if accumulate:
            element = emit.value("arith.addf", "f32", emit.value("memref.load", "f32", result, *place), element)
        emit.op("memref.store", [], [element, result, *place])


def _emit_columns(emit: LoopEmitter, buffers: Sequence[ir.Value], accumulate: bool) -> None:
    """Emit sums of rows of the weight ``[k, n]``, in vectors of columns."""
    (rows, inner), (_, columns) = (ir.MemRefType(each.type).shape for each in buffers[:2])
    lanes, registers = _registers()
    block = min(rows, registers // 4)
    vectors = max(registers // 2 // max(block, 4), 1) if block > 2 else 8
    width = lanes * vectors
    full = columns // width * width
    for begin, count, tile in ((0, full, width), (full, columns - full, lanes)):
        if count:
            inside, column = _tiles(emit, begin, count, tile, rows * inner * count)
            for row in range(0, rows, block):
                block_rows = range(row, min(row + block, rows))
                starts = [inside.index_op("addi", column, at) for at in range(0, tile, lanes)]
                _emit_block(inside, buffers, block_rows, starts, inner, accumulate)


def _emit_block(
    emit: LoopEmitter,
    buffers: Sequence[ir.Value],
    rows: Sequence[int],
    columns: Sequence[ir.Value],
    inner: int,
    accumulate: bool,
) -> None:
    """Emit the elements of the result in ``rows``, in vectors that begin in ``columns``."""
    left, right, result = buffers
    lanes, _ = _registers()
    vector = ir.VectorType.get([lanes], ir.F32Type.get(emit.context), loc=emit.location)
    places = [(emit.index(row), column) for row in rows for column in columns]
    if accumulate:
        sums = [emit.value("vector.load", vector, result, *place) for place in places]
    else:
        sums = [emit.value("vector.broadcast", vector, emit.constant_scalar(0.0, vector.element_type))] * len(places)

    def body(deep: LoopEmitter, k: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
        weights = [deep.value("vector.load", vector, right, k, column) for column in columns]
        factors = [deep.value("memref.load", "f32", left, deep.index(row), k) for row in rows]
        spread = [deep.value("vector.broadcast", vector, factor) for factor in factors]
        pairs = [(factor, weight) for factor in spread for weight in weights]
        return [deep.value("vector.fma", vector, *pair, sum_) for pair, sum_ in zip(pairs, carried, strict=True)]

    sums = emit.loop(0, inner, 1, sums, body)
    for place, sum_ in zip(places, sums, strict=True):
        emit.op("vector.store", [], [sum_, result, *place])
