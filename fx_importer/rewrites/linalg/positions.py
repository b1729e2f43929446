"""Compute positions, ``arange`` of an axis, in the loops that read them."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, producer
from fx_importer.mlir.indexing_maps import indexing_maps, loop_of
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.linalg.axis_orders import groups_of
from fx_importer.rewrites.linalg.linalg_no_ops import keep_operands

_LONGEST = 8
"""Operations of a loop that is computed where it is read, in each iteration there: random numbers are more."""
_SHORT = 2
"""Operations of a loop that is computed anew where it is read several times: ``linalg.index`` and its cast."""


@rewrite("fx-importer-inline-positions", ops=("linalg.generic",))
def inline_positions(op: ir.Operation) -> None:
    """Replace operands that loops without operands compute by that computation, in the body of the loop.

    A position that is an index is not negative: the selection of one that counts from the end is dropped. A loop of
    dynamic size that reads nothing at positions, as a mask's, keeps an operand that has its axis: IREE would reserve
    stack for the whole axis.
    """
    maps = indexing_maps(op)
    inputs = len(op.operands) - len(op.results)
    own = {loop for map_ in maps[inputs:] for result in map_.results if (loop := loop_of(result)) is not None}
    block = op.regions[0].blocks[0]
    reads = any(each.operation.name == "tensor.extract" for each in block.operations)
    inlined = set[int]()
    for number in range(inputs):
        found = _source(op.operands[number])
        if found is None:
            continue
        source, axes = found
        loops = [loop for axis in axes if (loop := loop_of(maps[number].results[axis])) in own]
        if not reads:
            others = [maps[other] for other in range(inputs) if other != number and other not in inlined]
            alone = set(loops) - {loop_of(result) for map_ in others for result in map_.results}
            if any(_is_dynamic(op, maps, loop) for loop in alone):
                continue
        if len(loops) == len(axes):  # results, which stay, give the sizes of these loops
            block.arguments[number].replace_all_uses_with(_inlined(source, loops, block))
            inlined.add(number)
    if inlined:
        for each in list(block.operations):
            if each.operation.name == "arith.select":
                _drop_wrap(each.operation)
        keep_operands(op, [number for number in range(len(op.operands)) if number not in inlined])


def _is_dynamic(op: ir.Operation, maps: list[ir.AffineMap], loop: int) -> bool:
    """Return whether an axis along which ``loop`` runs has a dynamic size."""
    return any(
        ir.RankedTensorType(operand.type).is_dynamic_dim(axis)
        for operand, map_ in zip(op.operands, maps, strict=True)
        for axis, result in enumerate(map_.results)
        if loop_of(result) == loop
    )


def _source(value: ir.Value) -> tuple[ir.Operation, list[int]] | None:
    """Return the loop without operands that computes ``value``, and the axis of ``value`` for each of its loops."""
    axes = list(range(ir.RankedTensorType(value.type).rank)) if isinstance(value.type, ir.RankedTensorType) else []
    while producer(value) == "tensor.expand_shape":
        shape = ir.RankedTensorType(value.type).shape
        longer = [[axis for axis in group if shape[axis] != 1] for group in groups_of(value.owner)]
        if any(len(group) != 1 for group in longer):
            return None
        axes = [axes[group[0]] for group in longer]
        value = value.owner.operands[0]
    if not axes or producer(value) != "linalg.generic" or len(value.owner.operands) != 1:
        return None
    loop: ir.Operation = value.owner
    block = loop.regions[0].blocks[0]
    kinds = [str(kind) for kind in ir.ArrayAttr(loop.attributes["iterator_types"])]
    if any("parallel" not in kind for kind in kinds) or next(block.arguments[0].uses, None) is not None:
        return None
    if indexing_maps(loop)[0] != ir.AffineMap.get_identity(len(axes), loop.context):
        return None
    *body, _ = block.operations
    most = _SHORT if len(list(value.uses)) > 1 else _LONGEST
    if len(body) > most or any(each.operation.regions for each in body):
        return None
    return loop, axes


def _inlined(source: ir.Operation, loops: list[int], block: ir.Block) -> ir.Value:
    """Copy the body of ``source`` to the start of ``block``, with its loops as ``loops`` of that one."""
    emit = Emitter(ir.InsertionPoint.at_block_begin(block), source.location)
    first = len(list(block.operations))
    (value,) = emit.inline_block(source.regions[0].blocks[0], block.arguments[-1:])
    copied = list(block.operations)[: len(list(block.operations)) - first]
    for each in copied:
        if each.operation.name == "linalg.index":
            dim = ir.IntegerAttr(each.operation.attributes["dim"]).value
            each.operation.attributes["dim"] = emit.i64(loops[dim])
    return value


def _drop_wrap(op: ir.Operation) -> None:
    """Replace ``select(position < 0, position + size, position)`` by the position."""
    condition, _, otherwise = op.operands
    if producer(otherwise) != "arith.index_cast" or producer(condition) != "arith.cmpi":
        return
    if ir.IntegerType(otherwise.type).width < _POSITION_BITS:
        return
    position, bound = condition.owner.operands
    is_less = ir.IntegerAttr(condition.owner.attributes["predicate"]).value == _SIGNED_LESS
    if position != otherwise or not is_less or producer(otherwise.owner.operands[0]) != "linalg.index":
        return
    if producer(bound) == "arith.constant" and ir.IntegerAttr(bound.owner.attributes["value"]).value == 0:
        op.results[0].replace_all_uses_with(otherwise)


_POSITION_BITS = 32
"""Integers of so many bits hold each position."""
_SIGNED_LESS = 2
"""The predicate of ``arith.cmpi``."""
