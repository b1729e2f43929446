"""Lower same-width ``view.dtype`` to ``arith.bitcast``, which the C++ lowerings do not do."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.torch.region_types import TypeConverter


@rewrite("fx-importer-bitcasts-to-linalg", ops=("torch.aten.view.dtype",), emitter=TypeConverter)
def bitcasts_to_linalg(op: ir.Operation, emit: TypeConverter) -> None:
    """Replace same-width ``torch.aten.view.dtype`` by an elementwise ``arith.bitcast``; others are unchanged."""
    source, result = (ir.RankedTensorType(emit.builtin_type(value.type)) for value in (op.operands[0], op.results[0]))
    if list(source.shape) != list(result.shape) or not _same_width(source.element_type, result.element_type):
        return
    operand = emit.to_builtin(op.operands[0])
    loops = LoopEmitter.before(op)

    def body(inside: LoopEmitter, elements: Sequence[ir.Value]) -> list[ir.Value]:
        return [inside.value("arith.bitcast", result.element_type, elements[0])]

    empty = loops.empty(loops.sizes(operand), result.element_type)
    (made,) = loops.elementwise([operand], [empty], body)
    replace(op, emit.from_builtin(made, op.results[0].type))


def _same_width(*types: ir.Type) -> bool:
    return len({type_.width if isinstance(type_, ir.IntegerType | ir.FloatType) else type_ for type_ in types}) == 1
