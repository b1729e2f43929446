"""Half-precision matmuls in the form that IREE vectorizes."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import attributes_of, producer
from fx_importer.mlir.emit.linalg import LinalgOps
from fx_importer.mlir.indexing_maps import PRODUCTS
from fx_importer.mlir.walk import operations, rewrite

_WIDENING = {"arith.extf", "arith.mulf", "arith.addf", "linalg.yield"}
"""The body of a product of half precision with sums in float32."""
_MOVES = ("linalg.transpose", "tensor.collapse_shape", "tensor.expand_shape", "tensor.cast")
_FEWEST_READS = 8
"""How often each element of an operand is read, at least, for the operand to be written in float32."""


@rewrite("fx-importer-widen-half-precision-matmuls")
def widen_half_precision_matmuls(module: ir.Operation) -> None:
    """Let matmuls of float16 and bfloat16 with float32 sums read float32 on one side.

    That is the left one, which its producer writes in float32, or the right one if the left is a weight;
    a weight stays as it is. The numbers stay the same. The loops of IREE 3.13 convert the elements of both sides each
    time that they read them.
    """
    for op in operations(module, set(PRODUCTS)):
        left, right, sums = map(LinalgOps.element, op.operands)
        body = {inner.operation.name for inner in op.regions[0].blocks[0]}
        if left != right or left not in ("f16", "bf16") or sums != "f32" or body != _WIDENING:
            continue
        *_, rows, columns = LinalgOps.shape(op.operands[2])
        at = 1 if _is_constant(op.operands[0]) else 0
        reads = rows if at else columns
        if not _is_constant(op.operands[at]) and (reads is None or reads >= _FEWEST_READS):
            _widen_operand(op, at)


def _is_constant(value: ir.Value) -> bool:
    while producer(value) in _MOVES:
        value = value.owner.operands[0]
    return producer(value) == "arith.constant"


def _widen_operand(op: ir.Operation, at: int) -> None:
    """Replace the product ``op`` by one that reads the operand ``at`` in float32."""
    emit, operands = LinalgOps.before(op), list(op.operands)
    operands[at] = _widened(emit, operands[at])

    def body(inside: LinalgOps, elements: Sequence[ir.Value]) -> Sequence[ir.Value]:
        factors = [_as_float(inside, element) for element in elements[:2]]
        return [inside.value("arith.addf", "f32", elements[2], inside.value("arith.mulf", "f32", *factors))]

    attributes = {k: v for k, v in attributes_of(op).items() if k != "linalg.memoized_indexing_maps"}
    (product,) = emit.structured(op.name.removeprefix("linalg."), operands[:2], operands[2:], body, attributes)
    op.results[0].replace_all_uses_with(product)
    op.erase()


def _as_float(emit: LinalgOps, element: ir.Value) -> ir.Value:
    return element if str(element.type) == "f32" else emit.value("arith.extf", "f32", element)


def _widened(emit: LinalgOps, value: ir.Value) -> ir.Value:
    """Emit ``value`` in float32: not as a conversion alone, which IREE would move into the loop of the product."""

    def body(inside: LinalgOps, elements: Sequence[ir.Value]) -> Sequence[ir.Value]:
        wide = _as_float(inside, elements[0])
        return [inside.value("math.copysign", "f32", wide, wide)]

    return emit.elementwise([value], [emit.empty(emit.sizes(value), emit.type("f32"))], body)[0]
