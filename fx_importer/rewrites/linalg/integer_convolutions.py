"""Lower int8 convolutions to int8 matmuls with int32 sums.

Each row of the left matrix is the window of one result pixel (im2col).
"""

from __future__ import annotations

import math

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import attributes_of, producer
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.indexing_maps import PRODUCTS
from fx_importer.mlir.walk import operations

_FEWEST_CHANNELS = 16
"""Minimum image channels for windows of several pixels: shorter runs are not read as vectors."""


def has_integer_products(module: ir.Module) -> bool:
    """Return whether ``module``, in linalg, has int8 matmuls with int32 sums."""
    return any(_is_of_int8(op) for op in operations(module.operation, set(PRODUCTS)))


def is_integer_product(op: ir.Operation) -> bool:
    """Return whether ``op`` is an int8 matmul, or a convolution that im2col can turn into one."""
    if not _is_of_int8(op) or op.name in PRODUCTS:
        return _is_of_int8(op)
    image, weight, begin = (ir.RankedTensorType(operand.type) for operand in op.operands)
    static = all(kind.has_static_shape for kind in (image, weight, begin))
    constant = producer(op.operands[1]) in ("arith.constant", "tensor.collapse_shape")
    named = op.name == "linalg.conv_2d_nchw_fchw"
    return named and static and constant and (weight.shape[2:] == [1, 1] or image.shape[1] >= _FEWEST_CHANNELS)


def product_of_windows(
    emit: LinalgOps, op: ir.Operation, image: ir.Value, weight: ir.Value, begin: ir.Value
) -> ir.Value:
    """Emit the convolution ``op`` as a matmul.

    Args:
        emit: The emitter.
        op: The convolution, which provides strides, dilations and arithmetic.
        image: ``i8[n, h, w, c]``.
        weight: ``i8[f, i, j, c]``.
        begin: ``i32[n, y, x, f]``, the initial values of the sums.

    Returns:
        ``i32[n, y, x, f]``.
    """
    filters, *window = ir.RankedTensorType(weight.type).shape
    sizes = ir.RankedTensorType(begin.type).shape
    narrow, wide = emit.type("i8"), emit.type("i32")
    pixels, terms = math.prod(sizes[:3]), math.prod(window)
    rows = _windows(emit, op, image, sizes, window)
    left = emit.collapse_shape(rows, [[0, 1, 2], [3, 4, 5]], emit.tensor([pixels, terms], narrow))
    right = emit.collapse_shape(weight, [[0], [1, 2, 3]], emit.tensor([filters, terms], narrow))
    groups = [[0, 1, 2], [3]]
    to = emit.collapse_shape(begin, groups, emit.tensor([pixels, filters], wide))
    maps = [emit.select_axes(3, axes) for axes in ((0, 2), (1, 2), (0, 1))]
    attributes = {"operandSegmentSizes": emit.segments(2, 1), "indexing_maps": emit.affine_maps(maps)}
    body = op.regions[0].blocks[0]
    (product,) = emit.structured(
        "matmul", [left, right], [to], lambda inside, elements: inside.inline_block(body, elements), attributes
    )
    return emit.expand_shape(product, groups, list(sizes))


def _windows(emit: LinalgOps, op: ir.Operation, image: ir.Value, sizes: list[int], window: list[int]) -> ir.Value:
    """Emit the elements ``i8[n, y, x, i, j, c]`` that are summed for result element ``[n, y, x, f]``."""
    (up, left), (down, right) = (_pair(op, name) for name in ("strides", "dilations"))
    with op.context:
        n, y, x, i, j, c = (ir.AffineDimExpr.get(axis) for axis in range(6))
        read = ir.AffineMap.get(6, 0, [n, y * up + i * down, x * left + j * right, c])
    empty = emit.empty([*sizes[:3], *window], emit.type("i8"))
    maps = [read, emit.select_axes(6, range(6))]
    return emit.generic([image], [empty], maps, lambda _, elements: elements[:1])[0]


def _pair(op: ir.Operation, name: str) -> tuple[int, int]:
    first, second = ir.DenseIntElementsAttr(attributes_of(op)[name]) if name in op.attributes else (1, 1)
    return first, second


def _is_of_int8(op: ir.Operation) -> bool:
    if tuple(map(LinalgOps.element, op.operands)) != ("i8", "i8", "i32"):
        return False
    body = {inner.operation.name for inner in op.regions[0].blocks[0]}
    return body == {"arith.extsi", "arith.muli", "arith.addi", "linalg.yield"}
