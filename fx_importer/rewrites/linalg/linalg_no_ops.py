"""What changes nothing is left out of linalg, and products read a transposed weight as it is.

Only what is exact for every value: ``x * 1``, but not ``x + 0``, which makes ``-0.0`` positive. What is dead after it,
the canonicalizer drops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import producer

_PRODUCTS = {
    "linalg.matmul": (3, ((0, 2), (2, 1), (0, 1))),
    "linalg.batch_matmul": (4, ((0, 1, 3), (0, 3, 2), (0, 1, 2))),
}
"""How many loops a product has, and which of them each axis of each operand runs along."""


def linalg_without_noise(module: ir.Operation) -> None:
    """Leave out what changes nothing."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in _PRODUCTS or op.name in _BODIES:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    with module.context:
        for op in found:
            if op.name in _PRODUCTS:
                _read_weights_as_they_are(op)
            else:
                _BODIES[op.name](op)


def _read_weights_as_they_are(op: ir.Operation) -> None:
    """Let ``indexing_maps`` say what a ``linalg.transpose`` of a constant does to an operand."""
    count, loops = _PRODUCTS[op.name]
    maps = [_map(count, each) for each in loops]
    if "indexing_maps" in op.attributes:
        maps = [ir.AffineMapAttr(each).value for each in ir.ArrayAttr(op.attributes["indexing_maps"])]
    for side in (0, 1):
        if producer(op.operands[side]) != "linalg.transpose":
            continue
        transpose = op.operands[side].owner
        if producer(transpose.operands[0]) != "arith.constant":
            continue
        order = list(ir.DenseI64ArrayAttr(transpose.attributes["permutation"]))
        results = list(maps[side].results)  # by the axes of the transposed operand; the axis ``order[i]`` becomes ``i``
        maps[side] = ir.AffineMap.get(count, 0, [results[order.index(axis)] for axis in range(len(order))])
        op.operands[side] = transpose.operands[0]
        op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps])


def _map(count: int, loops: Sequence[int]) -> ir.AffineMap:
    return ir.AffineMap.get(count, 0, [ir.AffineExpr.get_dim(loop) for loop in loops])


def _truncate(op: ir.Operation) -> None:
    """Round a float64 constant to float32 now: MLIR itself does it only where nothing is lost."""
    if producer(op.operands[0]) != "arith.constant" or not isinstance(op.operands[0].type, ir.F64Type):
        return
    if not isinstance(op.results[0].type, ir.F32Type) or "roundingmode" in op.attributes:
        return
    with np.errstate(over="ignore"):  # infinity, as of the instruction
        number = float(np.float32(ir.FloatAttr(op.operands[0].owner.attributes["value"]).value))
    _become(op, ir.FloatAttr.get(op.results[0].type, number, loc=op.location))


def _become(op: ir.Operation, value: ir.Attribute) -> None:
    constant = ir.Operation.create(
        "arith.constant",
        results=[op.results[0].type],
        attributes={"value": value},
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    op.results[0].replace_all_uses_with(constant.result)


def _multiply(op: ir.Operation) -> None:
    a, b = op.operands
    kept = a if _is_one(b) else b if _is_one(a) else None
    if kept is not None:
        _leave_out(op, kept)


def _divide(op: ir.Operation) -> None:
    if _is_one(op.operands[1]):
        _leave_out(op, op.operands[0])


def _leave_out(op: ir.Operation, value: ir.Value) -> None:
    """Use ``value`` in the place of ``op``, and if all that is left around it is a copy, what is copied."""
    op.results[0].replace_all_uses_with(value)
    generic = op.parent.operation if op.parent is not None else None
    if generic is None or generic.name != "linalg.generic" or len(generic.results) != 1:
        return
    body = generic.regions[0].blocks[0]
    yielded = list(body.operations)[-1].operands[0]
    if not isinstance(yielded.owner, ir.Block) or len(list(body.operations)) > 2:  # more than ``op`` and the yield
        return
    number, maps = ir.BlockArgument(yielded).arg_number, list(ir.ArrayAttr(generic.attributes["indexing_maps"]))
    source, result = generic.operands[number], generic.results[0]
    if maps[number] == maps[-1] and source.type == result.type:
        result.replace_all_uses_with(source)


def _is_one(value: ir.Value) -> bool:
    """Whether ``value`` is known to be 1: a constant, or an element of one in the body of a ``linalg.generic``."""
    if isinstance(value.owner, ir.Block):
        generic, number = value.owner.owner, ir.BlockArgument(value).arg_number
        generic = generic.operation
        if generic.name != "linalg.generic" or number >= len(generic.operands) - len(generic.results):
            return False
        value = generic.operands[number]
    if producer(value) != "arith.constant":
        return False
    held = value.owner.attributes["value"]
    if isinstance(held, ir.DenseElementsAttr):
        held = held.get_splat_value() if held.is_splat else held
    return isinstance(held, ir.FloatAttr) and held.value == 1


_BODIES = {"arith.truncf": _truncate, "arith.mulf": _multiply, "arith.divf": _divide}
"""Arithmetic on scalars, mostly in the bodies of structured operations."""
