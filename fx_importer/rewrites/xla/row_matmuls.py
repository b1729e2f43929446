"""Bfloat16 matmuls with one row, written so that XLA 0.10 reads the matrix without converting it."""

from __future__ import annotations

import math
from collections.abc import Collection

from fx_importer.mlir.bindings import ir, stablehlo_d
from fx_importer.mlir.emit.emitter import attributes_of
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-double-bf16-rows")
def double_bf16_rows(module: ir.Operation) -> None:
    """Pass the row twice in products of one row and a matrix, of bfloat16 with a float32 result.

    For two rows and more XLA has kernels for bfloat16 on processors. For one, each call writes the matrix as float32.
    """
    for op in operations(module, ("stablehlo.dot_general",)):
        if [StablehloOps.element(operand) for operand in (*op.operands, op.results[0])] != ["bf16", "bf16", "f32"]:
            continue
        numbers = stablehlo_d.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        left = [*numbers.lhs_batching_dimensions, *numbers.lhs_contracting_dimensions]
        right = [*numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions]
        rows = _rows(op.operands[0], left), _rows(op.operands[1], right)
        if rows[0] == 1 != rows[1]:
            _double(op, 0, len(StablehloOps.shape(op.operands[0])) - len(numbers.lhs_contracting_dimensions))
        elif rows[1] == 1 != rows[0]:
            _double(op, 1, len(StablehloOps.shape(op.results[0])))


def _rows(value: ir.Value, read: Collection[int]) -> int:
    """Return the product of the sizes of ``value`` other than of the axes ``read``; 0 if one is dynamic."""
    return math.prod(size or 0 for axis, size in enumerate(StablehloOps.shape(value)) if axis not in read)


def _double(op: ir.Operation, side: int, axis: int) -> None:
    """Give the operand number ``side`` one more axis, its last, of size two. It is number ``axis`` of the result."""
    emit = StablehloOps.before(op)
    row, result = op.operands[side], op.results[0]
    shape, sizes = emit.shape(row), list(emit.shape(result))
    twice = emit.op(
        "stablehlo.broadcast_in_dim",
        [emit.tensor([*shape, 2], "bf16")],
        [row],
        {"broadcast_dimensions": emit.array(range(len(shape)))},
    ).result
    operands = [twice, op.operands[1]] if side == 0 else [op.operands[0], twice]
    both = emit.tensor([*sizes[:axis], 2, *sizes[axis:]], "f32")
    product = emit.op(op.name, [both], operands, attributes_of(op)).result
    ends = [*sizes[:axis], 1, *sizes[axis:]]
    first = emit.op(
        "stablehlo.slice",
        [emit.tensor(ends, "f32")],
        [product],
        {
            "start_indices": emit.array([0] * len(ends)),
            "limit_indices": emit.array(ends),
            "strides": emit.array([1] * len(ends)),
        },
    ).result
    result.replace_all_uses_with(emit.value("stablehlo.reshape", result.type, first))
    op.erase()
