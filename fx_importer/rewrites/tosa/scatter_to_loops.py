"""Lower ``tosa.scatter`` to loops; ``tosa-to-linalg`` leaves it alone."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.walk import rewrite


@rewrite("fx-importer-tosa-scatter-to-loops", ops=("tosa.scatter",), emitter=LoopEmitter)
def tosa_scatter_to_loops(op: ir.Operation, emit: LoopEmitter) -> None:
    """Write ``input[n, w, c]`` to ``values[n, indices[n, w], c]``, and nothing for an index out of range."""
    values, indices, input_ = op.operands

    def write(inside: LoopEmitter, counters: Sequence[ir.Value], state: Sequence[ir.Value]) -> Sequence[ir.Value]:
        batch, number, channel = counters
        (written,) = state
        index = inside.value("arith.index_cast", "index", inside.extract(indices, batch, number))
        # unsigned: a negative index is large
        is_valid = inside.compare_integers("ult", index, inside.index(inside.size(written, 1)))
        row = inside.select_value(is_valid, index, inside.index(0))
        old = inside.extract(written, batch, row, channel)
        new = inside.select_value(is_valid, inside.extract(input_, batch, number, channel), old)
        return [inside.insert(new, written, batch, row, channel)]

    if 0 in emit.sizes(values):
        replace(op, values)
        return
    replace(op, *emit.nest(emit.sizes(input_), [values], write))
