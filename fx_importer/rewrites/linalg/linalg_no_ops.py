"""Fold identities, transposed operands of matmuls and operations on rank-0 tensors in linalg; drop unused results.

Folds must be exact for every value: ``x * 1``, but not ``x + 0``, which makes ``-0.0`` positive. The canonicalizer
removes dead code afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, producer, replace, terminator
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.indexing_maps import indexing_maps
from fx_importer.mlir.walk import rewrite

_PRODUCTS = {
    "linalg.matmul": (3, ((0, 2), (2, 1), (0, 1))),
    "linalg.batch_matmul": (4, ((0, 1, 3), (0, 3, 2), (0, 1, 2))),
}
"""The number of loops of a matmul, and the loop that each axis of each operand runs along."""


@rewrite("fx-importer-fold-linalg-no-ops", ops=(*_PRODUCTS, "arith.truncf", "arith.mulf", "arith.divf", "arith.cmpf"))
def fold_linalg_no_ops(op: ir.Operation) -> None:
    """Fold transposes of operands into matmuls.

    For scalars, fold multiplications and divisions by 1, truncated constants, and extensions before comparisons.
    """
    if op.name in _PRODUCTS:
        _fold_transposes(op)
    else:
        _SCALAR_FOLDS[op.name](op)


def _fold_transposes(op: ir.Operation) -> None:
    """Fold a ``linalg.transpose`` of an operand into the ``indexing_maps``; in a batch, one of each matrix."""
    context = op.context
    count, loops = _PRODUCTS[op.name]
    maps = [_map(count, loop, context) for loop in loops]
    if "indexing_maps" in op.attributes:
        maps = indexing_maps(op)
    for side in (0, 1):
        if producer(op.operands[side]) != "linalg.transpose":
            continue
        transpose = op.operands[side].owner
        order = list(ir.DenseI64ArrayAttr(transpose.attributes["permutation"]))
        if order[:-2] != list(range(len(order) - 2)):  # the batch of a linalg.batch_matmul is the first axis
            continue
        results = list(maps[side].results)  # by the axes of the transposed operand; the axis ``order[i]`` becomes ``i``
        maps[side] = ir.AffineMap.get(count, 0, [results[order.index(axis)] for axis in range(len(order))], context)
        op.operands[side] = transpose.operands[0]
        op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps], context)


def _map(count: int, loops: Sequence[int], context: ir.Context) -> ir.AffineMap:
    return ir.AffineMap.get(count, 0, [ir.AffineExpr.get_dim(loop, context) for loop in loops], context)


def _truncate(op: ir.Operation) -> None:
    """Fold the truncation of a float64 constant to float32: MLIR folds only lossless ones."""
    if producer(op.operands[0]) != "arith.constant" or not isinstance(op.operands[0].type, ir.F64Type):
        return
    if not isinstance(op.results[0].type, ir.F32Type) or "roundingmode" in op.attributes:
        return
    with np.errstate(over="ignore"):  # it becomes infinity, as at run time
        number = float(np.float32(ir.FloatAttr(op.operands[0].owner.attributes["value"]).value))
    value = ir.FloatAttr.get(op.results[0].type, number, loc=op.location)
    folded = Emitter.before(op).op("arith.constant", [op.results[0].type], (), {"value": value}).result
    op.results[0].replace_all_uses_with(folded)


def _multiply(op: ir.Operation) -> None:
    a, b = op.operands
    kept = a if _is_one(b) else b if _is_one(a) else None
    if kept is not None:
        _forward(op, kept)


def _divide(op: ir.Operation) -> None:
    if _is_one(op.operands[1]):
        _forward(op, op.operands[0])


def _compare(op: ir.Operation) -> None:
    """Compare an extended value with a constant in its own type, if that is lossless: GPUs may lack float64."""
    extended, constant = op.operands
    if producer(extended) != "arith.extf" or producer(constant) != "arith.constant":
        return
    narrow, bound = extended.owner.operands[0], constant.owner.attributes["value"]
    if not isinstance(bound, ir.FloatAttr):  # a tensor constant
        return
    value = ir.FloatAttr.get(narrow.type, bound.value, loc=op.location)
    if value.value != bound.value:  # rounded; NaN, which differs from itself, stays too
        return
    op.operands[0] = narrow
    op.operands[1] = Emitter.before(op).op("arith.constant", [narrow.type], (), {"value": value}).result


def _forward(op: ir.Operation, value: ir.Value) -> None:
    """Replace ``op`` by ``value``, and an enclosing ``linalg.generic`` by its input if it only copies that now."""
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
    """Whether ``value`` is the constant 1.0, or an element of such a constant in the body of a ``linalg.generic``."""
    if isinstance(value.owner, ir.Block):
        generic, number = value.owner.owner, ir.BlockArgument(value).arg_number
        generic = generic.operation
        if generic.name != "linalg.generic" or number >= len(generic.operands) - len(generic.results):
            return False
        value = generic.operands[number]
    if producer(value) != "arith.constant":
        return False
    attribute = value.owner.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        attribute = attribute.get_splat_value() if attribute.is_splat else attribute
    return isinstance(attribute, ir.FloatAttr) and attribute.value == 1


_SCALAR_FOLDS = {"arith.truncf": _truncate, "arith.mulf": _multiply, "arith.divf": _divide, "arith.cmpf": _compare}
"""Folds of arithmetic on scalars, mostly in the bodies of structured operations."""


@rewrite("fx-importer-inline-rank-0-generics", ops=("linalg.generic",), emitter=LoopEmitter)
def inline_rank_0_generics(op: ir.Operation, emit: LoopEmitter) -> None:
    """Replace each rank-0 ``linalg.generic`` by its body; in a loop, each would allocate its result."""
    if all(isinstance(operand.type, ir.RankedTensorType) and not emit.shape(operand) for operand in op.operands):
        scalars = [emit.extract(operand) for operand in op.operands]
        replace(op, *map(emit.as_tensor, emit.inline_block(op.regions[0].blocks[0], scalars)))


@rewrite("fx-importer-drop-unused-linalg-results", ops=("linalg.generic",))
def drop_unused_results(op: ir.Operation) -> None:
    """Drop unused results of a ``linalg.generic`` and their computation, if other results are used.

    The canonicalizer keeps results whose computation reads their own accumulator.
    """
    used = {number for number, result in enumerate(op.results) if next(result.uses, None) is not None}
    if not used or len(used) == len(op.results):
        return
    block = op.regions[0].blocks[0]
    inputs = len(op.operands) - len(op.results)
    kept, computation = _kept(block, used, inputs)
    if len(kept) == len(op.results):
        return

    yielded = terminator(block)
    dropped = [operation.operation for operation in block.operations if operation.operation not in computation]
    for number in set(range(len(op.results))).difference(kept):
        yielded.operands[number] = block.arguments[inputs + number]
    for operation in reversed(dropped):
        if operation != yielded:
            operation.erase()
    keep_operands(op, [*range(inputs), *(inputs + number for number in kept)])


def keep_operands(op: ir.Operation, kept: Sequence[int]) -> None:
    """Drop operands of a ``linalg.generic`` that its body does not use, and results with theirs, which nothing uses."""
    inputs = len(op.operands) - len(op.results)
    results = [number - inputs for number in kept if number >= inputs]
    maps = list(ir.ArrayAttr(op.attributes["indexing_maps"]))
    emit, block = Emitter.before(op), op.regions[0].blocks[0]
    attributes = {name: op.attributes[name] for name in op.attributes} | {
        "indexing_maps": ir.ArrayAttr.get([maps[number] for number in kept], op.context),
        "operandSegmentSizes": emit.segments(len(kept) - len(results), len(results)),
    }
    types = [op.results[number].type for number in results]
    made = emit.op("linalg.generic", types, [op.operands[number] for number in kept], attributes, regions=1)
    yielded = terminator(block)
    Emitter.before(yielded).op("linalg.yield", [], [yielded.operands[number] for number in results])
    yielded.erase()
    for number in reversed(range(len(op.operands))):
        if number not in kept:
            block.erase_argument(number)
    block.append_to(made.regions[0])
    for number, result in zip(results, made.results, strict=True):
        op.results[number].replace_all_uses_with(result)
    op.erase()


def _kept(block: ir.Block, used: Iterable[int], inputs: int) -> tuple[list[int], set[ir.Operation]]:
    """Return the results to keep, and the operations that compute them, without the terminator.

    They are the ``used`` results, and results whose accumulator these read. Operations with effects are kept.
    """
    kept, computation = set(used), set[ir.Operation]()
    yielded = terminator(block)
    left = [yielded.operands[number] for number in kept]
    for operation in block.operations:
        if not operation.operation.results and operation.operation != yielded:
            computation.add(operation.operation)
            left += operation.operation.operands
    while left:
        value = left.pop()
        if isinstance(value.owner, ir.Block):
            number = ir.BlockArgument(value).arg_number - inputs
            if value.owner == block and number >= 0 and number not in kept:
                kept.add(number)
                left.append(yielded.operands[number])
        elif value.owner not in computation:
            computation.add(value.owner)
            left += value.owner.operands
    return sorted(kept), computation
