"""Isolation of TOSA's regions from above, as its specification requires."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, attributes_of, is_used, producer, terminator
from fx_importer.mlir.walk import rewrite

_CONSTANTS = ("tosa.const", "tosa.const_shape")


@dataclass(frozen=True)
class _Use:
    """Operand ``index`` of ``op``, which is in region number ``region`` of the operation that is isolated."""

    op: ir.Operation
    index: int
    region: int


@rewrite("fx-importer-isolate-tosa-regions", ops=("tosa.cond_if", "tosa.while_loop"))
def isolate_tosa_regions(op: ir.Operation) -> None:
    """Isolate the regions of ``tosa.cond_if`` and ``tosa.while_loop`` from above: captured values become inputs.

    Constants are copied into the regions. MLIR allows these regions to capture, and its canonicalization hoists
    constants out of them, so this comes last. Operations are visited innermost first: values captured from further out
    become an input of each level.
    """
    captured = _captured(op)
    constants = {value: uses for value, uses in captured.items() if producer(value) in _CONSTANTS}
    for value, uses in constants.items():
        _copy(op, value, uses)
    inputs = {value: uses for value, uses in captured.items() if value not in constants}
    if inputs:
        _add_inputs(op, inputs)


def _captured(op: ir.Operation) -> dict[ir.Value, list[_Use]]:
    """Return the values defined outside of ``op`` that its regions use, with their uses."""
    own: set[ir.Value] = set()
    read: dict[ir.Value, list[_Use]] = {}
    for number, region in enumerate(op.regions):

        def visit(inner: ir.Operation, number: int = number) -> ir.WalkResult:
            for index, operand in enumerate(inner.operands):
                read.setdefault(operand, []).append(_Use(inner, index, number))
            own.update(inner.results)
            own.update(a for r in inner.regions for block in r.blocks for a in block.arguments)
            return ir.WalkResult.ADVANCE

        for block in region.blocks:
            own.update(block.arguments)
            for inner in block.operations:
                inner.operation.walk(visit)
    return {value: uses for value, uses in read.items() if value not in own}


def _copy(op: ir.Operation, constant: ir.Value, uses: list[_Use]) -> None:
    for number in sorted({use.region for use in uses}):
        start = ir.InsertionPoint.at_block_begin(op.regions[number].blocks[0])
        copy = constant.owner.clone(start).results[0]
        for use in uses:
            if use.region == number:
                use.op.operands[use.index] = copy
    if not is_used(constant):
        constant.owner.erase()


def _add_inputs(op: ir.Operation, inputs: dict[ir.Value, list[_Use]]) -> None:
    """Replace ``op`` by one with more inputs. A loop passes them on unchanged."""
    loops = op.name == "tosa.while_loop"
    types = [value.type for value in inputs]
    new = Emitter.before(op).op(
        op.name,
        [*(result.type for result in op.results), *(types if loops else [])],
        [*op.operands, *inputs],
        attributes_of(op),
        regions=len(op.regions),
    )
    for number, region in enumerate(op.regions):
        block = region.blocks[0]
        arguments = [block.add_argument(type_, op.location) for type_ in types]
        for argument, uses in zip(arguments, inputs.values(), strict=True):
            for use in uses:
                if use.region == number:
                    use.op.operands[use.index] = argument
        block.append_to(new.regions[number])
        if loops and number == 1:
            _extend_yield(block, arguments)
    for old, result in zip(op.results, list(new.results)[: len(op.results)], strict=True):
        old.replace_all_uses_with(result)
    op.erase()


def _extend_yield(block: ir.Block, values: Sequence[ir.Value]) -> None:
    old = terminator(block)
    Emitter.before(old).op(old.name, [], [*old.operands, *values])
    old.erase()
