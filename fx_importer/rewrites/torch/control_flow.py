"""``torch.prim.If`` and ``torch.prim.Loop`` as the structured control flow of TOSA, StableHLO and scf.

This comes before the torch ops are converted: the regions move unchanged, and values pass in and out as builtin
tensors. The conversion then finds the ops in the regions, which may read values defined outside of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import is_used, producer, terminator
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.walk import rewrite
from fx_importer.rewrites.torch.loop_slices import rewrite_counted_slices
from fx_importer.rewrites.torch.region_types import (
    NarrowCountConverter,
    ScalarConverter,
    TypeConverter,
    UnsignedTypeConverter,
    UnsupportedRegionType,
)

_NO_BOUND = 2**63 - 1
"""The trip count that the importer gives to a loop without a bound."""


@dataclass(frozen=True)
class _Dialect:
    branch: str
    loop: str
    yields: str
    converter: type[TypeConverter]


_TOSA = _Dialect("tosa.cond_if", "tosa.while_loop", "tosa.yield", NarrowCountConverter)
_STABLEHLO = _Dialect("stablehlo.if", "stablehlo.while", "stablehlo.return", UnsignedTypeConverter)
_SCF = _Dialect("scf.if", "scf.while", "scf.yield", ScalarConverter)
_CONDITION = "torch.aten.Bool.Tensor"
_CONTROL_FLOW = ("torch.prim.If", "torch.prim.Loop", _CONDITION)


@rewrite("fx-importer-control-flow-to-tosa", ops=_CONTROL_FLOW)
def control_flow_to_tosa(op: ir.Operation) -> None:
    """Turn every ``torch.prim.If`` and ``torch.prim.Loop`` into ``tosa.cond_if`` and ``tosa.while_loop``."""
    _lower(op, _TOSA)


@rewrite("fx-importer-control-flow-to-stablehlo", ops=_CONTROL_FLOW)
def control_flow_to_stablehlo(op: ir.Operation) -> None:
    """Turn every ``torch.prim.If`` and ``torch.prim.Loop`` into ``stablehlo.if`` and ``stablehlo.while``."""
    _lower(op, _STABLEHLO)


@rewrite("fx-importer-control-flow-to-scf", ops=_CONTROL_FLOW)
def control_flow_to_scf(op: ir.Operation) -> None:
    """Turn every ``torch.prim.If``, and every ``torch.prim.Loop`` with a condition, into ``scf.if`` and ``scf.while``.

    ``convert-torch-to-scf`` takes the other loops. Of a loop whose initial condition is true it makes an ``scf.for``
    that drops the condition, and it does not lower one with a condition and a bound. An ``scf.if`` that it makes of
    branches that return other values unchanged is folded to an ``arith.select`` of torch tensors.
    """
    if op.name != "torch.prim.Loop" or _is_conditional(op):
        _lower(op, _SCF)


def _lower(op: ir.Operation, dialect: _Dialect) -> None:
    """Lower ``op`` to ``dialect``. Report an error if values other than tensors and scalars enter or leave a region.

    The condition of an operation that was removed, since its results have no elements, is removed too.
    """
    if op.name == _CONDITION:
        if not is_used(op.result):
            op.erase()
        return
    try:
        (_branch if op.name == "torch.prim.If" else _loop)(op, dialect)
    except UnsupportedRegionType as reason:
        op.location.emit_error(f"'{op.name}': {reason}")


def _branch(op: ir.Operation, dialect: _Dialect) -> None:
    emit = dialect.converter.before(op)
    types = [emit.builtin_type(result.type) for result in op.results]
    new = emit.op(dialect.branch, types, [emit.to_builtin(op.operands[0])], regions=2)
    for old_region, region in zip(op.regions, new.regions, strict=True):
        block = old_region.blocks[0]
        block.append_to(region)
        last = terminator(block)
        _replace_terminator(last, dialect, last.operands)
    _replace(op, new.results, dialect)


@dataclass(frozen=True)
class _LoopState:
    """The iter_args of a new loop: its condition and its counter, where it needs them; then the iter_args."""

    bound: ir.Value
    conditional: bool
    limited: bool
    """Whether the loop has a bound."""
    counted: bool
    torch_types: list[ir.Type]
    builtin_types: list[ir.Type]

    @property
    def first_carried(self) -> int:
        return self.conditional + self.counted


def _loop(op: ir.Operation, dialect: _Dialect) -> None:
    bound, first, *initial = op.operands
    body = op.regions[0].blocks[0]
    conditional, limited = _is_conditional(op), constant_of(bound) != _NO_BOUND
    counted = limited or is_used(body.arguments[0])
    emit = dialect.converter.before(op)
    entering = [*([first] if conditional else []), *([emit.zero(constant_of(bound))] if counted else []), *initial]
    torch_types = [value.type for value in entering]
    types = [emit.builtin_type(torch_type) for torch_type in torch_types]
    state = _LoopState(bound, conditional, limited, counted, torch_types, types)
    new = emit.op(dialect.loop, types, [emit.to_builtin(value) for value in entering], regions=2)
    _emit_condition(new.regions[0], state, emit, dialect)
    _convert_body(body, state, emit, dialect)
    body.append_to(new.regions[1])
    _replace(op, list(new.results)[state.first_carried :], dialect)


def _emit_condition(region: ir.Region, state: _LoopState, emit: TypeConverter, dialect: _Dialect) -> None:
    """Fill the region that tests whether the condition holds and the counter is below the bound."""
    block = emit.add_block(region, state.builtin_types)
    inside = emit.inside(block)
    checks: list[ir.Value] = []
    if state.conditional:
        checks.append(inside.from_builtin(block.arguments[0], "!torch.bool"))
    if state.limited:
        position = int(state.conditional)
        count = inside.from_builtin(block.arguments[position], state.torch_types[position])
        checks.append(inside.below(count, state.bound))
    goes_on = inside.both(*checks) if len(checks) == 2 else checks[0] if checks else inside.boolean(True)
    if dialect is _SCF:
        inside.op("scf.condition", [], [inside.to_builtin(goes_on), *block.arguments])
    else:
        inside.op(dialect.yields, [], [inside.to_builtin(goes_on)])
    _erase_unused_reads([goes_on, *checks])


def _convert_body(body: ir.Block, state: _LoopState, emit: TypeConverter, dialect: _Dialect) -> None:
    """Replace the arguments and the terminator of ``body`` by the new loop's."""
    counter, *arguments = body.arguments
    new = [body.add_argument(builtin_type, emit.location) for builtin_type in state.builtin_types]
    start = dialect.converter(ir.InsertionPoint.at_block_begin(body), emit.location)
    position = int(state.conditional)
    count = [start.from_builtin(new[position], state.torch_types[position])] if state.counted else []
    next_counts = [start.next_count(number) for number in count]
    ints = [start.count_as_int(number) for number in count]
    for old, value in zip(arguments, new[state.first_carried :], strict=True):
        old.replace_all_uses_with(start.from_builtin(value, old.type))
    for number, as_int in zip(count, ints, strict=True):
        if dialect is not _SCF:
            rewrite_counted_slices(body, counter, number)
        counter.replace_all_uses_with(as_int)
    _erase_unused_reads(ints)
    for _ in range(1 + len(arguments)):
        body.erase_argument(0)
    last = terminator(body)
    condition, *carried = last.operands
    _replace_terminator(last, dialect, [*([condition] if state.conditional else []), *next_counts, *carried])


def _is_conditional(loop: ir.Operation) -> bool:
    condition = terminator(loop.regions[0].blocks[0]).operands[0]
    return not constant_of(loop.operands[1]) == constant_of(condition) == 1


def _replace_terminator(old: ir.Operation, dialect: _Dialect, values: Sequence[ir.Value]) -> None:
    """Yield ``values`` where ``old`` ends its block."""
    emit = dialect.converter.before(old)
    emit.op(dialect.yields, [], [emit.to_builtin(value) for value in values])
    _erase(old)


def _replace(op: ir.Operation, results: Sequence[ir.Value], dialect: _Dialect) -> None:
    """Replace ``op``, whose regions are gone, by ``results``, which have the builtin types of its own."""
    emit = dialect.converter.before(op)
    for old, result in zip(op.results, results, strict=True):
        old.replace_all_uses_with(emit.from_builtin(result, old.type))
    _erase(op)


def _erase(op: ir.Operation) -> None:
    operands = list(op.operands)
    op.erase()
    _erase_unused_reads(operands)


def _erase_unused_reads(scalars: Sequence[ir.Value]) -> None:
    """Erase what read ``scalars`` from tensors and has no use left: not every dialect can lower it."""
    reads = [f"torch.aten.{kind}.Tensor" for kind in ("Bool", "Int", "Float")]
    for value in dict.fromkeys(scalars):
        if producer(value) in reads and not is_used(value):
            value.owner.erase()
