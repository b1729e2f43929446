"""Limits of the fusion of elementwise operations on tensors, whose pass asks only how often a result is used."""

from __future__ import annotations

import math

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, producer
from fx_importer.mlir.indexing_maps import indexing_maps
from fx_importer.mlir.walk import operations, rewrite

_REPEATED = 16
"""How often a result is read by one operation from which it is computed once, if it is expensive."""
_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")
_DIVISIONS = ("arith.divf", "arith.divsi", "arith.divui", "arith.remf", "arith.remsi", "arith.remui")
_MARK = "bufferization.dealloc_tensor"
"""A second use of what is not to be fused, which passes on tensors keep."""


@rewrite("fx-importer-keep-from-recomputation")
def keep_from_recomputation(module: ir.Operation) -> None:
    """Mark expensive elementwise results that an operation broadcasts: fused, they would be computed once per read.

    So with an activation in front of a product with a weight that is unpacked in its loop. `remove_fusion_marks` runs
    after fusion.
    """
    seen: dict[ir.Value, bool] = {}
    marked: set[ir.Value] = set()
    for op in operations(module.operation):
        if not op.name.startswith("linalg.") or "indexing_maps" not in op.attributes:
            continue
        maps = indexing_maps(op)
        sizes = _loop_sizes(op, maps)
        for operand, read in zip(op.operands, maps, strict=True):
            value = reshaped(operand)
            axes = {result.position for result in read.results if isinstance(result, ir.AffineDimExpr)}
            repeats = math.prod(size for loop, size in enumerate(sizes) if loop not in axes)
            if repeats >= _REPEATED and value not in marked and _is_expensive(value, seen):
                marked.add(value)
    for value in marked:
        keep(value)


def keep(value: ir.Value) -> None:
    """Mark a result, which is then not fused with what reads it."""
    Emitter(ir.InsertionPoint.after(value.owner), value.owner.location).op(_MARK, [], [value])


@rewrite("fx-importer-remove-fusion-marks")
def remove_fusion_marks(module: ir.Operation) -> None:
    """Remove what `keep_from_recomputation` added."""
    for op in operations(module.operation, (_MARK,)):
        op.erase()


def _loop_sizes(op: ir.Operation, maps: list[ir.AffineMap]) -> list[int]:
    """Return the number of iterations of each loop; 1 of those that are not known."""
    sizes = [1] * maps[0].n_dims
    for operand, read in zip(op.operands, maps, strict=True):
        if not isinstance(operand.type, ir.RankedTensorType):
            continue
        kind = ir.RankedTensorType(operand.type)
        for axis, result in enumerate(read.results):
            if isinstance(result, ir.AffineDimExpr) and not kind.is_dynamic_dim(axis):
                sizes[result.position] = kind.get_dim_size(axis)
    return sizes


def reshaped(value: ir.Value) -> ir.Value:
    """Return the value that ``value`` reshapes."""
    while producer(value) in _RESHAPES:
        value = value.owner.operands[0]
    return value


def _is_expensive(value: ir.Value, seen: dict[ir.Value, bool]) -> bool:
    """Whether ``value`` is elementwise, and it or an op fused with it computes functions or divisions."""
    if value not in seen:
        seen[value] = False
        if producer(value) == "linalg.generic":
            op = value.owner
            elementwise = all("parallel" in str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"]))
            body = (inner.operation.name for inner in op.regions[0].blocks[0])
            seen[value] = elementwise and (
                any(name.startswith("math.") or name in _DIVISIONS for name in body)
                or any(_is_expensive(reshaped(operand), seen) for operand in op.operands)
            )
    return seen[value]
