"""Products of matrices by BLAS; by the one that PyTorch was linked with in tiles that threads share.

Each tile is computed by one thread, and the tiles depend on the sizes only: so does the order of every sum.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Size
from fx_importer.mlir.emit.llvm import POINTER, LlvmOps, function_hints
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.functions import body_of
from fx_importer.rewrites.llvm.library_functions import Product
from fx_importer.rewrites.llvm.parallel_loops import TILES, has_threads

_ROUTINES = {"f32": "SGEMM", "f64": "DGEMM"}
ELEMENT_BYTES = {"f32": 4, "f64": 8}
"""The bytes of the elements of matrices that BLAS multiplies."""
LARGEST_SIZE = 2**31 - 1
"""BLAS takes sizes of 32 bits."""
_THREADS = "MKL_Set_Num_Threads_Local"
_TILE = "fx_importer_tile_"
_TILES_FROM = {2: 256, 4: 1024, 8: 2048}
"""The columns or rows from which on there are as many tiles. MKL packs the other operand again for each."""


@functools.cache
def routines() -> dict[str, int]:
    """Return the addresses of MKL's functions in PyTorch; none if it was linked with another BLAS."""
    import torch

    names = (*_ROUTINES.values(), _THREADS)
    for path in Path(torch.__file__).parent.glob("lib/libtorch_cpu.*"):
        library = ctypes.CDLL(str(path))
        if has_threads() and all(hasattr(library, name) for name in names):
            return {name: int(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0) for name in names}
    return {}


def define_product(function: func_d.FuncOp, product: Product) -> str | None:
    """Replace ``function``, on buffers, by one that calls BLAS; return the element type, or None if there is none.

    The new function calls the one that `define_tiles` defines.
    """
    kinds = [ir.MemRefType(argument) for argument in function.type.inputs if isinstance(argument, ir.MemRefType)]
    element = str(kinds[-1].element_type)
    fits = len(kinds) == len(function.type.inputs) == 3 and all(str(kind.element_type) == element for kind in kinds)
    matrices = all(
        kind.layout == ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank, function.context)) for kind in kinds
    )
    if not fits or not matrices or not routines() or not fits_blas(product, kinds):
        return None
    emit = LoopEmitter.before(function.operation)
    inside, buffers = emit.define_function(function.name.value, function.type.inputs)
    _emit_tiles(inside, buffers, product, element)
    inside.op("func.return", [])
    function.operation.erase()
    return element


def fits_blas(product: Product, kinds: Sequence[ir.ShapedType]) -> bool:
    """Return whether BLAS multiplies such matrices, of types ``kinds``: rows or columns are contiguous."""
    axes = (product.left, product.right, product.result)
    return (
        product.result[-1] == "n"
        and all(letters[-1] != "b" for letters in axes)
        and all(str(kind.element_type) in ELEMENT_BYTES for kind in kinds)
        and all(size <= LARGEST_SIZE for kind in kinds for size in kind.shape)
    )


class BlasMatrix:
    """The contiguous memory of an operand: how many elements it is to the next one along each axis."""

    def __init__(self, emit: LoopEmitter, buffer: ir.Value, axes: str, sizes: Mapping[str, Size]):
        self.buffer = buffer
        self._strides: dict[str, Size] = {}
        stride: Size = 1
        for axis in reversed(axes):
            self._strides[axis] = stride
            stride = _times(emit, stride, sizes[axis])
        row = self._strides[axes.replace("b", "")[0]]
        self.leading = max(row, 1) if isinstance(row, int) else emit.index_op("maxui", row, 1)
        """The leading dimension; 1 of empty matrices."""

    def offset(self, emit: LoopEmitter, **position: Size) -> Size:
        """Emit the offset of an element by its indices along some axes; along ``b`` there may be one matrix only."""
        offset: Size = 0
        for axis, index in position.items():
            if axis in self._strides:
                step = _times(emit, index, self._strides[axis])
                offset = step if isinstance(offset, int) and not offset else emit.index_op("addi", offset, step)
        return offset


def _times(emit: LoopEmitter, left: Size, right: Size) -> Size:
    if isinstance(left, int):
        left, right = right, left
    if isinstance(right, int) and (isinstance(left, int) or right < 2):
        return left * right if isinstance(left, int) else (left if right else 0)
    return emit.index_op("muli", left, right)


def matrices_of(
    emit: LoopEmitter, buffers: Sequence[ir.Value], product: Product
) -> tuple[dict[str, Size], list[BlasMatrix]]:
    """Return the sizes of ``product`` by axis, and its operands and result."""
    sizes: dict[str, Size] = {}
    axes = (product.left, product.right, product.result)
    for buffer, letters in zip(buffers, axes, strict=True):
        for position, letter in enumerate(letters):
            if letter not in sizes:
                sizes[letter] = emit.size(buffer, position)
    return sizes, [BlasMatrix(emit, buffer, letters, sizes) for buffer, letters in zip(buffers, axes, strict=True)]


def _emit_tiles(emit: LoopEmitter, buffers: Sequence[ir.Value], product: Product, element: str) -> None:
    """Emit a loop over the tiles of the longer axis of the result, in each matrix of a batch."""
    sizes, (a, b, c) = matrices_of(emit, buffers, product)

    def address(inside: LoopEmitter, matrix: BlasMatrix, **position: Size) -> ir.Value:
        begin = inside.value("memref.extract_aligned_pointer_as_index", "index", matrix.buffer)
        offset = inside.index_op("muli", matrix.offset(inside, **position), ELEMENT_BYTES[element])
        return inside.index_op("addi", begin, offset)

    rows, columns = emit.index(sizes["m"]), emit.index(sizes["n"])
    is_wide = emit.compare_integers("sgt", columns, rows)
    length = emit.select_value(is_wide, columns, rows)
    wanted = emit.index(1)
    for number_of_tiles, shortest in _TILES_FROM.items():
        is_long = emit.compare_integers("sge", length, emit.index(shortest))
        wanted = emit.select_value(is_long, emit.index(number_of_tiles), wanted)
    tile = emit.index_op("ceildivui", length, wanted)
    tile = emit.index_op("maxui", tile, 1)
    tiles = emit.index_op("ceildivui", length, tile)
    count = emit.index_op("muli", tiles, sizes.get("b", 1))

    inside, number = emit.parallel_loop(count, {TILES: ir.UnitAttr.get(emit.context)})
    batch = inside.index_op("divui", number, tiles)
    begin = inside.index_op("muli", inside.index_op("remui", number, tiles), tile)
    width = inside.index_op("minui", tile, inside.index_op("subi", length, begin))
    zero = inside.index(0)
    row, column = inside.select_value(is_wide, zero, begin), inside.select_value(is_wide, begin, zero)
    m, n = inside.select_value(is_wide, rows, width), inside.select_value(is_wide, width, columns)
    # Fortran's matrices are column-major: it computes the transposed result, of the transposed operands.
    right, left = (
        inside.constant_integer(ord("N" if letters[-1] == last else "T"), inside.type("i8"))
        for letters, last in ((product.right, "n"), (product.left, "k"))
    )
    one, beta = (inside.constant_scalar(factor, inside.type(element)) for factor in (1.0, float(product.accumulate)))
    operands = [
        *(right, left, _i32(inside, n), _i32(inside, m), _i32(inside, sizes["k"]), one),
        *(address(inside, b, b=batch, n=column), _i32(inside, b.leading)),
        *(address(inside, a, b=batch, m=row), _i32(inside, a.leading), beta),
        *(address(inside, c, b=batch, m=row, n=column), _i32(inside, c.leading)),
    ]
    inside.call_function(f"{_TILE}{element}", [], operands)


def _i32(emit: LoopEmitter, size: Size) -> ir.Value:
    return emit.value("arith.index_cast", "i32", emit.index(size))


def define_tiles(module: ir.Operation, elements: Collection[str]) -> None:
    """Define the functions of one tile, on the calling thread only, for products of ``elements``.

    They take what BLAS takes: addresses of matrices, and all else by value, which BLAS takes by address too.
    """
    emit = LlvmOps(ir.InsertionPoint(body_of(module)), ir.Location.unknown(module.context))
    if elements:
        emit.declare_llvm(_THREADS, ["i32"], "i32")
    for element in elements:
        parameters = ["i8", "i8", "i32", "i32", "i32", element, "index", "i32", "index", "i32", element, "index", "i32"]
        emit.declare_llvm(_ROUTINES[element], [POINTER] * len(parameters))
        noinline = {"llvm.passthrough": function_hints(emit.context, "noinline")}
        inside, arguments = emit.define_function(f"{_TILE}{element}", parameters, [], noinline)
        addresses = [inside.pointer(x) if isinstance(x.type, ir.IndexType) else inside.on_stack(x) for x in arguments]
        before = inside.call_llvm(_THREADS, ["i32"], [inside.constant(1, "i32")]).result
        inside.call_llvm(_ROUTINES[element], [], addresses)
        inside.call_llvm(_THREADS, ["i32"], [before])
        inside.op("func.return", [])
