"""Products of a few rows and a small weight, as the steps of recurrent networks have, in vector registers.

A library spends more on such a product than its arithmetic takes. Each thread computes columns of the result, and each
element is one sum in the order of the columns of the left matrix: results do not depend on the number of threads.
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
"""Rows of the left matrix up to which this is faster than a library."""
LARGEST_WEIGHT = 1 << 18
"""In float32 elements, a megabyte: larger ones do not stay in the cache of a processor from call to call."""
_SHARED_WORK = 1 << 18
"""The number of multiplications from which threads share a product."""
_REGISTERS = {"AVX512": (16, 32), "AVX2": (8, 16)}
"""Floats of a vector, and registers of vectors, by PyTorch's name of the instructions."""


@functools.cache
def _registers() -> tuple[int, int]:
    return _REGISTERS.get(torch.backends.cpu.get_cpu_capability(), (0, 0))


def computes_rows(rows: int, inner: int, columns: int) -> bool:
    """Return whether `define_row_product` computes a product of float32 of these static sizes."""
    lanes, _ = _registers()
    if not lanes or min(rows, inner, columns) < 1:  # a dynamic size is negative
        return False
    return rows <= MOST_ROWS and inner * columns <= LARGEST_WEIGHT and columns % lanes == 0


def define_row_product(function: func_d.FuncOp, product: Product) -> bool:
    """Replace ``function``, on buffers ``[m, k]``, ``[k, n]`` and ``[m, n]``; return False if it takes others."""
    kinds = [each for each in function.type.inputs if isinstance(each, ir.MemRefType)]
    axes = (product.left, product.right, product.result)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(2, function.context))
    if len(kinds) != len(function.type.inputs) or any(each.layout != identity for each in kinds):
        return False
    if axes != ("mk", "kn", "mn"):
        return False
    inside, buffers = LoopEmitter.before(function.operation).define_function(function.name.value, kinds)
    (rows, inner), (_, columns) = kinds[0].shape, kinds[1].shape
    lanes, registers = _registers()
    block = min(rows, registers // 4)
    vectors = max(registers // 2 // max(block, 4), 1) if block > 2 else 8
    width = lanes * vectors
    full = columns // width * width
    for begin, count, tile in ((0, full, width), (full, columns - full, lanes)):
        if count:
            is_shared = begin == 0 and rows * inner * columns >= _SHARED_WORK
            attributes = {TILES: ir.UnitAttr.get(inside.context)} if is_shared else {}
            tiles, number = inside.parallel_loop(count // tile, attributes)
            column = tiles.index_op("addi", begin, tiles.index_op("muli", number, tile))
            for row in range(0, rows, block):
                block_rows = range(row, min(row + block, rows))
                starts = [tiles.index_op("addi", column, at) for at in range(0, tile, lanes)]
                _emit_block(tiles, buffers, block_rows, starts, inner, product.accumulate)
    inside.op("func.return", [])
    function.operation.erase()
    return True


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
