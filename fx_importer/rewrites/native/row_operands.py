"""Operands of contractions, copied so that vectors of columns are contiguous."""

from __future__ import annotations

import math

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.indexing_maps import indexing_maps
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.linalg.loop_interchange import permute_operand_map, row_order, transposed_axes
from fx_importer.rewrites.llvm.row_products import registers

_FEWEST_READS = 8
"""Reads of an element from which a copy takes less time than it saves."""


@rewrite("fx-importer-transpose-operands")
def transpose_operands(module: ir.Operation) -> None:
    """Transpose an operand that is not a weight, such as the keys of attention, for `tile_sums`.

    ``C[m, n] += A[m, k] * B[n, k]`` then reads ``B`` as ``[k, n]``: see `row_order`. A transposition before it is
    part of the copy.
    """
    for op in operations(module.operation, ("linalg.generic",)):
        lanes, _ = registers(op)
        for operand in range(len(op.operands) - len(op.results)) if lanes else ():
            order = row_order(op, operand)
            value = op.operands[operand]
            if order is None or str(ir.RankedTensorType(value.type).element_type) not in ("f32", "f64"):
                continue
            if _reads(op, operand) < _FEWEST_READS:
                continue
            axes, source = order, value
            before = transposed_axes(value.owner) if isinstance(value, ir.OpResult) else None
            if before is not None and len(before) == len(order):
                axes, source = tuple(before[axis] for axis in order), value.owner.operands[0]
            with op.context, op.location:
                emit = LinalgOps.before(op)
                sizes = emit.sizes(source)
                rank = len(sizes)
                element = ir.RankedTensorType(source.type).element_type
                target = emit.empty([sizes[axis] for axis in axes], element)
                read = ir.AffineMap.get_permutation([axes.index(axis) for axis in range(rank)])
                maps = [read, ir.AffineMap.get_identity(rank)]
                op.operands[operand] = emit.generic([source], [target], maps, lambda _, values: values[:1])[0]
                permute_operand_map(op, operand, order)


def _reads(op: ir.Operation, operand: int) -> int:
    """Return how often ``op`` reads an element of an operand; 1 for sizes that are not known."""
    maps = indexing_maps(op)
    read = {result.position for result in maps[operand].results if isinstance(result, ir.AffineDimExpr)}
    written = ir.RankedTensorType(op.operands[len(op.operands) - 1].type)
    sizes = {
        result.position: written.shape[axis]
        for axis, result in enumerate(maps[-1].results)
        if isinstance(result, ir.AffineDimExpr) and not written.is_dynamic_dim(axis)
    }
    return math.prod(size for loop, size in sizes.items() if loop not in read)
