"""Products of a few rows, as the steps of recurrent networks and of language models have, in vector registers.

A library spends more on a product with a small weight than its arithmetic takes, and reads a large one of one row more
slowly than memory can be read. Each thread computes columns of the result, and the order of each sum depends on the
sizes only: results do not depend on the number of threads. Elements of bfloat16 are extended to float32 where they are
loaded, and a sum is rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Emitter
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.rewrites.llvm.library_functions import Product
from fx_importer.rewrites.llvm.parallel_loops import TILES
from fx_importer.rewrites.llvm.processor import processor_of

_MOST_ROWS = {"f32": {"kn": 32, "nk": 7}, "bf16": {"kn": 8, "nk": 3}}
"""Rows of the left matrix up to which this is faster than a library, by element type and axes of the weight.

Libraries have an instruction for products of pairs of bfloat16.
"""
LARGEST_WEIGHT = 1 << 18
"""In elements of a weight ``[k, n]``: larger ones do not stay in the cache of a processor from call to call."""
_MOST_DOTS = 8
"""Rows of a weight ``[n, k]`` that are read at the same time: of 4 a processor reads a fifth less in a second."""
SHARED_WORK = 1 << 18
"""The number of multiplications from which threads share a product."""
_REGISTERS = {"AVX512": (16, 32), "AVX2": (8, 16)}
"""Floats of a vector, and registers of vectors, by PyTorch's name of the instructions."""


@functools.cache
def _host_registers() -> tuple[int, int]:
    import torch

    return _REGISTERS.get(torch.backends.cpu.get_cpu_capability(), (0, 0))


def registers(at: ir.Operation | Emitter) -> tuple[int, int]:
    """Return the floats of a vector, and the number of registers for vectors; zeros if vectors are not used.

    They are of the processor that the module around ``at`` is for (`set_processor`), or else of this machine.
    """
    processor = processor_of(at)
    return _host_registers() if processor is None else (processor.lanes, processor.registers)


def computes_rows(op: ir.Operation, element: str, weight: str, rows: int, inner: int, columns: int) -> bool:
    """Return whether `define_row_product` computes ``op``, a product of these static sizes and of ``element``.

    ``weight`` has the axes of the right matrix, ``kn`` or ``nk``.
    """
    lanes, _ = registers(op)
    if not lanes or element not in _MOST_ROWS or min(rows, inner, columns) < 1:  # a dynamic size is negative
        return False
    if rows > _MOST_ROWS[element][weight]:
        return False
    if weight == "nk":
        return inner % _step(op, element) == 0
    return inner * columns <= LARGEST_WEIGHT and columns % lanes == 0


def define_row_product(function: func_d.FuncOp, product: Product) -> bool:
    """Replace ``function``, on buffers ``[m, k]``, a weight and ``[m, n]``; return False if it takes others."""
    kinds = [argument for argument in function.type.inputs if isinstance(argument, ir.MemRefType)]
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(2, function.context))
    if len(kinds) != len(function.type.inputs) or any(kind.layout != identity for kind in kinds):
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
    attributes = {TILES: ir.UnitAttr.get(emit.context)} if work >= SHARED_WORK else {}
    inside, number = emit.parallel_loop(count // tile, attributes)
    return inside, inside.index_op("addi", begin, inside.index_op("muli", number, tile))


def _emit_dots(emit: LoopEmitter, buffers: Sequence[ir.Value], accumulate: bool) -> None:
    """Emit products of rows of the left matrix and of the weight ``[n, k]``, each with a vector of partial sums."""
    (rows, inner), (columns, _) = (ir.MemRefType(buffer.type).shape for buffer in buffers[:2])
    _, available = registers(emit)
    block = min(available // 2 // rows, _MOST_DOTS)
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
    lanes, _ = registers(emit)
    inner, most = ir.MemRefType(left.type).shape[1], ir.MemRefType(right.type).shape[0]
    step = _step(emit, _element(right))
    following = [emit.index_op("minui", emit.index_op("addi", column, len(columns)), most - 1) for column in columns]
    places = [(emit.index(row), column) for row in range(rows) for column in columns]

    def body(deep: LoopEmitter, k: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
        weights = [_load_step(deep, right, column, k) for column in columns]
        factors = [_load_step(deep, left, deep.index(row), k) for row in range(rows)]
        for column in following:
            prefetch(deep, right, column, k)
        pairs = [(factor, weight) for factor in factors for weight in weights]
        sums = list(carried)
        for half in range(step // lanes):
            sums = [
                deep.value("vector.fma", sum_.type, factor[half], weight[half], sum_)
                for (factor, weight), sum_ in zip(pairs, sums, strict=True)
            ]
        return sums

    sums = emit.loop(0, inner, step, [_zeros(emit)] * len(places), body)
    add = {
        "kind": ir.Attribute.parse("#vector.kind<add>", emit.context),
        "fastmath": ir.Attribute.parse("#arith.fastmath<reassoc>", emit.context),
    }
    for indices, sum_ in zip(places, sums, strict=True):
        element = emit.op("vector.reduction", ["f32"], [sum_], add).result
        if accumulate:
            element = emit.value("arith.addf", "f32", _load(emit, result, *indices), element)
        emit.op("memref.store", [], [_rounded(emit, element, result), result, *indices])


def _emit_columns(emit: LoopEmitter, buffers: Sequence[ir.Value], accumulate: bool) -> None:
    """Emit sums of rows of the weight ``[k, n]``, in vectors of columns."""
    (rows, inner), (_, columns) = (ir.MemRefType(buffer.type).shape for buffer in buffers[:2])
    lanes, available = registers(emit)
    block = min(rows, available // 4)
    vectors = max(available // 2 // max(block, 4), 1) if block > 2 else 8
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
    places = [(emit.index(row), column) for row in rows for column in columns]
    sums = [_load_vector(emit, result, *at) if accumulate else _zeros(emit) for at in places]

    def body(deep: LoopEmitter, k: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
        weights = [_load_vector(deep, right, k, column) for column in columns]
        factors = [_load(deep, left, deep.index(row), k) for row in rows]
        spread = [deep.value("vector.broadcast", _vector(deep), factor) for factor in factors]
        pairs = [(factor, weight) for factor in spread for weight in weights]
        return [deep.value("vector.fma", sum_.type, *pair, sum_) for pair, sum_ in zip(pairs, carried, strict=True)]

    sums = emit.loop(0, inner, 1, sums, body)
    for indices, sum_ in zip(places, sums, strict=True):
        emit.op("vector.store", [], [_rounded(emit, sum_, result), result, *indices])


def prefetch(emit: LoopEmitter, buffer: ir.Value, *indices: ir.Value) -> None:
    """Emit a prefetch into the second cache: hardware prefetching ends at a page, or a row."""
    attributes = {
        "isWrite": ir.BoolAttr.get(False, emit.context),
        "isDataCache": ir.BoolAttr.get(True, emit.context),
        "localityHint": emit.attribute("2 : i32"),
    }
    emit.op("memref.prefetch", [], [buffer, *indices], attributes)


def _vector(emit: LoopEmitter, element: str = "f32") -> ir.Type:
    return emit.type(f"vector<{registers(emit)[0]}x{element}>")


def _zeros(emit: LoopEmitter) -> ir.Value:
    return emit.value("vector.broadcast", _vector(emit), emit.constant_scalar(0.0, emit.type("f32")))


def _load(emit: LoopEmitter, buffer: ir.Value, *indices: ir.Value) -> ir.Value:
    """Emit the load of an element, as float32."""
    kind = _element(buffer)
    value = emit.value("memref.load", kind, buffer, *indices)
    return value if kind == "f32" else emit.value("arith.extf", "f32", value)


def _load_vector(emit: LoopEmitter, buffer: ir.Value, *indices: ir.Value) -> ir.Value:
    """Emit the load of a vector that begins at ``indices``, as float32."""
    kind = _element(buffer)
    value = emit.value("vector.load", _vector(emit, kind), buffer, *indices)
    return value if kind == "f32" else emit.value("arith.extf", _vector(emit), value)


def _step(at: ir.Operation | Emitter, element: str) -> int:
    """Return how many elements of a row of a weight ``[n, k]`` are loaded at once."""
    lanes, _ = registers(at)
    return 2 * lanes if element == "bf16" else lanes


def _load_step(emit: LoopEmitter, buffer: ir.Value, *indices: ir.Value) -> list[ir.Value]:
    """Emit the load of `_step` elements that begin at ``indices``, as vectors of float32, in any order.

    Of two bfloat16 in 32 bits, each is the float32 that has it in its high bits and zeros in the others.
    """
    if _element(buffer) != "bf16":
        return [_load_vector(emit, buffer, *indices)]
    lanes, _ = registers(emit)
    words = _vector(emit, "i32")
    loaded = emit.value("vector.load", emit.type(f"vector<{2 * lanes}xbf16>"), buffer, *indices)
    pairs = emit.value("vector.bitcast", words, loaded)
    shift, mask = (
        emit.value("vector.broadcast", words, emit.constant_integer(number, emit.type("i32")))
        for number in (16, -1 << 16)
    )
    halves = emit.value("arith.shli", words, pairs, shift), emit.value("arith.andi", words, pairs, mask)
    return [emit.value("vector.bitcast", _vector(emit), half) for half in halves]


def _rounded(emit: LoopEmitter, value: ir.Value, buffer: ir.Value) -> ir.Value:
    """Emit the conversion of a float32, or a vector of float32, to the element type of ``buffer``."""
    kind = _element(buffer)
    if kind == "f32":
        return value
    return emit.value("arith.truncf", kind if str(value.type) == "f32" else _vector(emit, kind), value)


def _element(buffer: ir.Value) -> str:
    return str(ir.MemRefType(buffer.type).element_type)
