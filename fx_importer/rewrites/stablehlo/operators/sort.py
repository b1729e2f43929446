"""Sorting. (`nans_in_stablehlo` puts NaN in its place.)"""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import constant_of
from fx_importer.rewrites.stablehlo.tensor_emitter import TensorEmitter


def _sort(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    x, dim, descending = op.operands
    axis, falls = emit.axis(x, dim), constant_of(descending)
    return None if axis is None or falls is None else _sorted(emit, x, axis, bool(falls))


def _topk(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
    """The first of all, sorted."""
    x, k, dim, largest, _ = op.operands
    axis, falls = emit.axis(x, dim), constant_of(largest)
    if axis is None or falls is None:
        return None
    found = _sorted(emit, x, axis, bool(falls))
    sizes = emit.sizes(found[0])
    sizes[axis] = emit.number(k)
    return [emit.first(each, sizes) for each in found]


def _sorted(emit: TensorEmitter, x: ir.Value, axis: int, descending: bool) -> list[ir.Value]:
    """Emit the elements in order along ``axis``, and where they were."""
    rows = emit.send(x)
    places = emit.iota(axis, emit.sizes(rows))
    attributes = {"dimension": emit.i64(axis), "is_stable": ir.BoolAttr.get(True, emit.context)}
    made = emit.op("stablehlo.sort", [rows.type, places.type], [rows, places], attributes, regions=1)
    element, place = (emit.tensor((), emit.element(each)) for each in (rows, places))
    direction = "GT" if descending else "LT"
    emit.block(made.regions[0], [element] * 2 + [place] * 2, lambda inside, a, b, *_: [inside.compare(direction, a, b)])
    return list(made.results)


RULES = {"torch.aten.sort": _sort, "torch.aten.topk": _topk}
