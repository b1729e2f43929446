"""Regions of TOSA that read nothing from outside, as its specification wants them."""

from __future__ import annotations

from dataclasses import dataclass

from fx_importer.mlir.bindings import ir

_CONSTANTS = ("tosa.const", "tosa.const_shape")


@dataclass(frozen=True)
class _Use:
    """Operand ``index`` of ``op``, which is in the region number ``region`` of what is to be isolated."""

    op: ir.Operation
    index: int
    region: int


def isolate_tosa_regions(module: ir.Operation) -> None:
    """Make what the regions of ``tosa.cond_if`` and ``tosa.while_loop`` read from outside their inputs; copy constants.

    MLIR lets these regions read what is around them, and its canonicalization moves constants out of them: so this
    comes last.
    """
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in ("tosa.cond_if", "tosa.while_loop"):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)  # innermost first: what is read from far outside becomes an input of each level
    for op in found:
        captured = _captured(op)
        constants = {value: uses for value, uses in captured.items() if _is_constant(value)}
        for value, uses in constants.items():
            _copy(op, value, uses)
        inputs = {value: uses for value, uses in captured.items() if value not in constants}
        if inputs:
            _pass_in(op, inputs)


def _captured(op: ir.Operation) -> dict[ir.Value, list[_Use]]:
    """Return what the regions of ``op`` read from outside of ``op``, and where."""
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


def _is_constant(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name in _CONSTANTS


def _copy(op: ir.Operation, constant: ir.Value, uses: list[_Use]) -> None:
    for number in sorted({use.region for use in uses}):
        start = ir.InsertionPoint.at_block_begin(op.regions[number].blocks[0])
        copy = constant.owner.clone(start).results[0]
        for use in uses:
            if use.region == number:
                use.op.operands[use.index] = copy
    if not any(True for _ in constant.uses):
        constant.owner.erase()


def _pass_in(op: ir.Operation, inputs: dict[ir.Value, list[_Use]]) -> None:
    """Replace ``op`` by one with more inputs. A loop carries them along, as they are."""
    loops = op.name == "tosa.while_loop"
    types = [value.type for value in inputs]
    new = ir.Operation.create(
        op.name,
        results=[*(result.type for result in op.results), *(types if loops else [])],
        operands=[*op.operands, *inputs],
        attributes={each.name: each.attr for each in op.attributes},
        regions=len(op.regions),
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    for number, region in enumerate(op.regions):
        block = region.blocks[0]
        arguments = [block.add_argument(each, op.location) for each in types]
        for argument, uses in zip(arguments, inputs.values(), strict=True):
            for use in uses:
                if use.region == number:
                    use.op.operands[use.index] = argument
        block.append_to(new.regions[number])
        if loops and number == 1:
            _yield_too(block, arguments)
    for old, result in zip(op.results, list(new.results)[: len(op.results)], strict=True):
        old.replace_all_uses_with(result)
    op.erase()


def _yield_too(block: ir.Block, values: list[ir.Value]) -> None:
    old = block.operations[len(block.operations) - 1]
    operands = [*old.operands, *values]
    ir.Operation.create(old.operation.name, operands=operands, loc=old.location, ip=ir.InsertionPoint(old))
    old.operation.erase()
