"""Lower ``gelu`` to one loop; the C++ lowering rounds its constants to four digits, and cubes by a power."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer, replace
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.torch.region_types import TypeConverter


@rewrite("fx-importer-gelu-to-linalg", ops=("torch.aten.gelu",), emitter=TypeConverter)
def gelu_to_linalg(op: ir.Operation, emit: TypeConverter) -> None:
    """Replace ``torch.aten.gelu`` of floats by one ``linalg.generic``, in float32 for shorter floats, as eager."""
    element = ir.RankedTensorType(emit.builtin_type(op.operands[0].type)).element_type
    if not isinstance(element, ir.FloatType) or producer(op.operands[1]) != "torch.constant.str":
        return
    approximate = ir.StringAttr(op.operands[1].owner.attributes["value"]).value
    x = emit.to_builtin(op.operands[0])
    loops = LoopEmitter.before(op)

    def body(inside: LoopEmitter, elements: Sequence[ir.Value]) -> list[ir.Value]:
        if element.width >= 32:
            return [_gelu(inside, elements[0], approximate)]
        wide = inside.value("arith.extf", "f32", elements[0])
        return [inside.value("arith.truncf", element, _gelu(inside, wide, approximate))]

    (made,) = loops.elementwise([x], [loops.empty(loops.sizes(x), element)], body)
    replace(op, emit.from_builtin(made, op.results[0].type))


def _gelu(emit: LoopEmitter, x: ir.Value, approximate: str) -> ir.Value:
    """Emit ``x * Φ(x)`` of a scalar, or its approximation by a hyperbolic tangent, in the order of eager's kernel."""

    def times(a: ir.Value, b: ir.Value | float) -> ir.Value:
        return emit.value("arith.mulf", x.type, a, b if isinstance(b, ir.Value) else emit.constant_scalar(b, x.type))

    def plus(a: ir.Value, b: ir.Value) -> ir.Value:
        return emit.value("arith.addf", x.type, a, b)

    if approximate == "tanh":
        cube = times(times(times(x, x), x), 0.044715)
        sigmoid = emit.value("math.tanh", x.type, times(plus(x, cube), math.sqrt(2 / math.pi)))
    else:
        sigmoid = emit.value("math.erf", x.type, times(x, math.sqrt(0.5)))
    return times(times(x, 0.5), plus(sigmoid, emit.constant_scalar(1.0, x.type)))
