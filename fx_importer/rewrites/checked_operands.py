"""Operands that are safe in calls that violate an assumption, whose checks are read after the whole function ran.

An index or a divisor whose range an assumption guarantees would otherwise end the process, and a loop run forever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, terminator
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.functions import check_results, functions_of
from fx_importer.mlir.walk import ModuleRewrite, operations, rewrite


@dataclass(frozen=True)
class _Dialect:
    """How a dialect spells the operations that are unsafe, and what makes them safe."""

    unsafe: Mapping[str, tuple[int, int]]
    """The operand that may be out of range, and a value that is always in range, by operation."""
    loop: str
    both: Callable[[ir.Operation, ir.Value, ir.Value], ir.Value]
    """Emit the conjunction of two booleans of rank 0 before an operation."""
    choose: Callable[[ir.Operation, ir.Value, ir.Value, int], ir.Value]
    """Emit before an operation: a tensor of integers if the boolean is true, else a number in its shape."""


def _guard(dialect: _Dialect) -> ModuleRewrite:
    def guard(module: ir.Operation) -> None:
        for function in functions_of(module).values():
            if checks := check_results(function):
                _guard_block(function.entry_block, checks, dialect)

    return guard


def _guard_block(block: ir.Block, checks: list[int], dialect: _Dialect) -> None:
    """Guard the operations of ``block`` by the checks before them, in the order of the program."""
    last = terminator(block)
    pending = {last.operands[position] for position in checks}
    holds = _all(
        [argument for argument in block.arguments if argument in pending], block.operations[0].operation, dialect
    )
    for op, following in pairwise(list(block.operations)):
        for inner in operations(op.operation, {*dialect.unsafe, dialect.loop}) if holds is not None else ():
            _guard_operation(inner, holds, dialect)
        known = [result for result in op.results if result in pending]
        holds = _all([*([] if holds is None else [holds]), *known], following.operation, dialect)


def _all(conditions: Sequence[ir.Value], op: ir.Operation, dialect: _Dialect) -> ir.Value | None:
    """Emit the conjunction of ``conditions`` before ``op``; None without any."""
    return reduce(lambda a, b: dialect.both(op, a, b), conditions) if conditions else None


def _guard_operation(op: ir.Operation, holds: ir.Value, dialect: _Dialect) -> None:
    if op.name == dialect.loop:
        last = terminator(op.regions[0].blocks[0])
        last.operands[0] = dialect.both(last, last.operands[0], holds)
        return
    position, safe = dialect.unsafe[op.name]
    if isinstance(ir.RankedTensorType(op.operands[position].type).element_type, ir.IntegerType):
        op.operands[position] = dialect.choose(op, holds, op.operands[position], safe)


def _stablehlo_choice(op: ir.Operation, condition: ir.Value, x: ir.Value, number: int) -> ir.Value:
    emit = StablehloOps.before(op)
    if None not in Emitter.shape(x):
        other = emit.dense_constant(str(number), x.type)
    elif number:
        other = emit.stablehlo("convert", x.type, emit.compare("EQ", x, x))
    else:
        other = emit.stablehlo("subtract", x.type, x, x)
    return emit.stablehlo("select", x.type, condition, x, other)


def _tosa_choice(op: ir.Operation, condition: ir.Value, x: ir.Value, number: int) -> ir.Value:
    emit = TosaOps.before(op)
    ones = [1] * len(Emitter.shape(x))
    if ones:
        condition = emit.value("tosa.reshape", emit.tensor(ones, "i1"), condition, emit.const_shape(ones))
    other = emit.const(emit.attribute(f"dense<{number}> : {emit.tensor(ones, Emitter.element(x))}"))
    return emit.value("tosa.select", x.type, condition, x, other)


_STABLEHLO = _Dialect(
    {
        "stablehlo.gather": (1, 0),
        "stablehlo.scatter": (1, 0),
        "stablehlo.divide": (1, 1),
        "stablehlo.remainder": (1, 1),
    },
    "stablehlo.while",
    lambda op, a, b: StablehloOps.before(op).stablehlo("and", a.type, a, b),
    _stablehlo_choice,
)
"""Gathers and slices clamp their indices; scatters ignore those out of range, which IREE does not."""

_TOSA = _Dialect(
    {"tosa.gather": (1, 0), "tosa.scatter": (1, 0), "tosa.intdiv": (1, 1)},
    "tosa.while_loop",
    lambda op, a, b: TosaOps.before(op).value("tosa.logical_and", a.type, a, b),
    _tosa_choice,
)

guard_stablehlo = rewrite("fx-importer-guard-stablehlo")(_guard(_STABLEHLO))
guard_tosa = rewrite("fx-importer-guard-tosa")(_guard(_TOSA))
