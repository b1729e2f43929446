"""Pads whose borders alone are filled: what is padded is computed where it is read."""

from __future__ import annotations

from itertools import compress

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, replace, terminator
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-fill-pad-borders", ops=("tensor.pad",), emitter=LinalgOps)
def fill_pad_borders(op: ir.Operation, emit: LinalgOps) -> None:
    """Replace a ``tensor.pad`` by one value along axes of static sizes: fill what is added, and insert the operand."""
    kind = ir.RankedTensorType(op.results[0].type)
    (source, *dynamic), (value,) = op.operands, terminator(op.regions[0].blocks[0]).operands
    low, high = (list(ir.DenseI64ArrayAttr(op.attributes[f"static_{side}"])) for side in ("low", "high"))
    padded = [any(added) for added in zip(low, high, strict=True)]
    if (
        dynamic
        or min([*low, *high], default=0) < 0
        or any(map(kind.is_dynamic_dim, compress(range(kind.rank), padded)))
    ):
        return
    if producer(value) == "arith.constant":
        value = value.owner.operation.clone(ip=emit.point).results[0]
    elif op.regions[0].blocks[0] == (value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block):
        return  # each element has a value of its own
    inside = emit.sizes(source)
    offsets, sizes = [0] * kind.rank, [kind.shape[axis] if padded[axis] else inside[axis] for axis in range(kind.rank)]
    result = emit.empty(sizes, kind.element_type)
    for axis in compress(range(kind.rank), padded):
        for offset, size in ((0, low[axis]), (kind.shape[axis] - high[axis], high[axis])):
            if size:
                at, of = [*offsets], [*sizes]
                at[axis], of[axis] = offset, size
                slice_ = emit.extract_slice(result, at, of, range(kind.rank))
                result = emit.insert_slice(emit.fill(value, slice_), result, at, of)
        offsets[axis], sizes[axis] = low[axis], inside[axis]
    replace(op, emit.insert_slice(source, result, offsets, inside))
