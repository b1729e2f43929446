"""``torch.prim.If`` and ``torch.prim.Loop`` as the structured control flow of TOSA, StableHLO and scf.

This comes before the torch ops are converted: the regions move as they are, and values pass in and out as builtin
tensors. The conversion then finds the ops in the regions, which may read what is defined outside of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import constant_of, is_used, producer
from fx_importer.rewrites.torch.loop_slices import respell_counted_slices
from fx_importer.rewrites.torch.region_types import Carrier, NarrowCarrier, ScalarCarrier, Uncarried, UnsignedCarrier

_NO_BOUND = 2**63 - 1
"""The trip count that the importer gives to a loop without any."""


@dataclass(frozen=True)
class _Dialect:
    branch: str
    loop: str
    yields: str
    carrier: type[Carrier]

    def before(self, op: ir.Operation) -> Carrier:
        return self.carrier(ir.InsertionPoint(op), op.location)


_TOSA = _Dialect("tosa.cond_if", "tosa.while_loop", "tosa.yield", NarrowCarrier)
_STABLEHLO = _Dialect("stablehlo.if", "stablehlo.while", "stablehlo.return", UnsignedCarrier)
_SCF = _Dialect("scf.if", "scf.while", "scf.yield", ScalarCarrier)


def control_flow_to_tosa(module: ir.Operation) -> None:
    """Turn every ``torch.prim.If`` and ``torch.prim.Loop`` into ``tosa.cond_if`` and ``tosa.while_loop``."""
    _rewrite(module, _TOSA, lambda op: True)


def control_flow_to_stablehlo(module: ir.Operation) -> None:
    """Turn every ``torch.prim.If`` and ``torch.prim.Loop`` into ``stablehlo.if`` and ``stablehlo.while``."""
    _rewrite(module, _STABLEHLO, lambda op: True)


def conditional_loops_to_scf(module: ir.Operation) -> None:
    """Turn every ``torch.prim.Loop`` with a condition into ``scf.while``.

    ``convert-torch-to-scf`` takes the others. Of a loop that is known to have a first turn it makes an ``scf.for``
    that drops the condition, and one with a condition and a bound it refuses.
    """
    _rewrite(module, _SCF, lambda op: op.name == "torch.prim.Loop" and _is_conditional(op))


def _rewrite(module: ir.Operation, dialect: _Dialect, chosen: Callable[[ir.Operation], bool]) -> None:
    """Spell the chosen control flow in ``dialect``. What passes other values than tensors and numbers is an error."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in ("torch.prim.If", "torch.prim.Loop") and chosen(op):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)  # innermost first
    for op in found:
        try:
            (_branch if op.name == "torch.prim.If" else _loop)(op, dialect)
        except Uncarried as reason:
            op.location.emit_error(f"'{op.name}': {reason}")


def _branch(op: ir.Operation, dialect: _Dialect) -> None:
    emit = dialect.before(op)
    types = [emit.carrier_type(result.type) for result in op.results]
    new = emit.op(dialect.branch, types, [emit.send(op.operands[0])], regions=2)
    for old_region, region in zip(op.regions, new.regions, strict=True):
        block = old_region.blocks[0]
        block.append_to(region)
        last = _last(block)
        _replace_last(last, dialect, last.operands)
    _replace(op, new.results, dialect)


def _loop(op: ir.Operation, dialect: _Dialect) -> None:
    """The state of the new loop: its condition and the count of its turns, where it needs them; the values carried."""
    bound, first, *initial = op.operands
    body = op.regions[0].blocks[0]
    counter, *arguments = body.arguments
    conditional, limited = _is_conditional(op), constant_of(bound) != _NO_BOUND
    counted = limited or is_used(counter)
    emit = dialect.before(op)
    entering = [*([first] if conditional else []), *([emit.zero(constant_of(bound))] if counted else []), *initial]
    torch_types = [value.type for value in entering]
    types = [emit.carrier_type(each) for each in torch_types]
    new = emit.op(dialect.loop, types, [emit.send(value) for value in entering], regions=2)

    test = new.regions[0].blocks.append(*types, arg_locs=[op.location] * len(types))
    inside = dialect.carrier(ir.InsertionPoint(test), op.location)
    checks: list[ir.Value] = []
    if conditional:
        checks.append(inside.receive(test.arguments[0], "!torch.bool"))
    if limited:
        checks.append(inside.below(inside.receive(test.arguments[conditional], torch_types[conditional]), bound))
    goes_on = inside.both(*checks) if len(checks) == 2 else checks[0] if checks else inside.boolean(True)
    if dialect is _SCF:
        inside.op("scf.condition", [], [inside.send(goes_on), *test.arguments])
    else:
        inside.op(dialect.yields, [], [inside.send(goes_on)])
    _erase_unread([goes_on, *checks])

    state = [body.add_argument(each, op.location) for each in types]
    start = dialect.carrier(ir.InsertionPoint.at_block_begin(body), op.location)
    count = [start.receive(state[conditional], torch_types[conditional])] if counted else []
    following = [start.next_count(now) for now in count]
    numbers = [start.count_as_int(now) for now in count]
    for old, carrier in zip(arguments, state[conditional + counted :], strict=True):
        old.replace_all_uses_with(start.receive(carrier, old.type))
    for now, number in zip(count, numbers, strict=True):
        if dialect is not _SCF:
            respell_counted_slices(body, counter, now)
        counter.replace_all_uses_with(number)
    _erase_unread(numbers)
    for _ in range(1 + len(arguments)):
        body.erase_argument(0)
    body.append_to(new.regions[1])
    last = _last(body)
    again, *carried = last.operands
    _replace_last(last, dialect, [*([again] if conditional else []), *following, *carried])
    _replace(op, list(new.results)[conditional + counted :], dialect)


def _is_conditional(loop: ir.Operation) -> bool:
    again = _last(loop.regions[0].blocks[0]).operands[0]
    return not constant_of(loop.operands[1]) == constant_of(again) == 1


def _last(block: ir.Block) -> ir.Operation:
    return block.operations[len(block.operations) - 1].operation


def _replace_last(old: ir.Operation, dialect: _Dialect, values: Sequence[ir.Value]) -> None:
    """Yield ``values`` where ``old`` ends its block."""
    emit = dialect.before(old)
    emit.op(dialect.yields, [], [emit.send(value) for value in values])
    operands = list(old.operands)
    old.erase()
    _erase_unread(operands)


def _replace(op: ir.Operation, results: Sequence[ir.Value], dialect: _Dialect) -> None:
    """Replace ``op``, whose regions are gone, by carriers of its results."""
    emit = dialect.before(op)
    for old, result in zip(op.results, results, strict=True):
        old.replace_all_uses_with(emit.receive(result, old.type))
    operands = list(op.operands)
    op.erase()
    _erase_unread(operands)


def _erase_unread(numbers: Sequence[ir.Value]) -> None:
    """Erase what read ``numbers`` from tensors and is not used any more: not every dialect can lower it."""
    reads = [f"torch.aten.{kind}.Tensor" for kind in ("Bool", "Int", "Float")]
    for value in dict.fromkeys(numbers):
        if producer(value) in reads and not is_used(value):
            value.owner.erase()
