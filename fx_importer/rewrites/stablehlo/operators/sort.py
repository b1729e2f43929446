"""Sort and top-k. `nans_in_stablehlo` orders NaN."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.rewrites.stablehlo.tensor_emitter import TensorEmitter


def _sort(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    x, dim, descending = op.operands
    axis, descends = emit.axis(x, dim), constant_of(descending)
    return None if axis is None or descends is None else _sorted(emit, x, axis, bool(descends))


def _topk(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    """Lower to a slice of the fully sorted elements."""
    x, k, dim, largest, _ = op.operands
    axis, descends = emit.axis(x, dim), constant_of(largest)
    if axis is None or descends is None:
        return None
    sorted_ = _sorted(emit, x, axis, bool(descends))
    sizes = emit.arith.sizes(sorted_[0])
    sizes[axis] = emit.number(k)
    return [emit.first(value, sizes) for value in sorted_]


def _sorted(emit: TensorEmitter, x: ir.Value, axis: int, descending: bool) -> list[ir.Value]:
    """Emit the elements sorted along ``axis``, and their indices."""
    rows = emit.torch.to_builtin(x)
    indices = emit.iota(axis, emit.arith.sizes(rows))
    attributes = {"dimension": emit.i64(axis), "is_stable": ir.BoolAttr.get(True, emit.context)}
    made = emit.op("stablehlo.sort", [rows.type, indices.type], [rows, indices], attributes, regions=1)
    element, index = (emit.tensor((), emit.element(tensor)) for tensor in (rows, indices))
    direction = "GT" if descending else "LT"
    emit.fill_region(
        made.regions[0],
        [element] * 2 + [index] * 2,
        lambda inside, a, b, *_: [inside.compare_elements(direction, a, b)],
    )
    return list(made.results)


LOWERINGS = {"torch.aten.sort": _sort, "torch.aten.topk": _topk}
