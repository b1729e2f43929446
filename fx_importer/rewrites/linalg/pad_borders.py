"""Pads whose borders alone are filled: what is padded is computed where it is read."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, replace, terminator
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-fill-pad-borders", ops=("tensor.pad",), emitter=LinalgOps)
def fill_pad_borders(op: ir.Operation, emit: LinalgOps) -> None:
    """Replace a ``tensor.pad`` of static sizes and one value by fills of the added slices, and an insertion."""
    kind = ir.RankedTensorType(op.results[0].type)
    (source, *sizes), (value,) = op.operands, terminator(op.regions[0].blocks[0]).operands
    if sizes or not kind.has_static_shape or not ir.RankedTensorType(source.type).has_static_shape:
        return
    low = list(ir.DenseI64ArrayAttr(op.attributes["static_low"]))
    inside = list(ir.RankedTensorType(source.type).shape)
    high = [whole - first - count for whole, first, count in zip(kind.shape, low, inside, strict=True)]
    if min([*low, *high], default=0) < 0:
        return
    if producer(value) == "arith.constant":
        value = value.owner.operation.clone(ip=emit.point).results[0]
    elif op.regions[0].blocks[0] == (value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block):
        return  # each element has a value of its own
    result = emit.empty(kind.shape, kind.element_type)
    offsets, extents = [0] * kind.rank, list(kind.shape)
    for axis, (first, count, last) in enumerate(zip(low, inside, high, strict=True)):
        for offset, size in ((0, first), (first + count, last)):
            if size:
                at, of = [*offsets], [*extents]
                at[axis], of[axis] = offset, size
                slice_ = emit.extract_slice(result, at, of, range(kind.rank))
                result = emit.insert_slice(emit.fill(value, slice_), result, at, of)
        offsets[axis], extents[axis] = first, count
    replace(op, emit.insert_slice(source, result, offsets, extents))
