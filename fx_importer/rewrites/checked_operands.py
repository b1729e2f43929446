"""Operands that are safe in calls that violate an assumption, whose checks are read after the whole function ran.

An index or a divisor whose range an assumption guarantees would otherwise end the process, and a loop run forever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import compress, pairwise

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Emitter, producer, replace, terminator, update_function_type
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.functions import check_results, functions_of
from fx_importer.mlir.walk import ModuleRewrite, operations, rewrite


@dataclass(frozen=True)
class _Dialect:
    """How a dialect spells the operations that are unsafe, and what makes them safe."""

    unsafe: Mapping[str, tuple[int, int | None]]
    """The operand that may be out of range, and a value that is always in range, by operation; None for positions."""
    loop: str
    both: Callable[[ir.Operation, ir.Value, ir.Value], ir.Value]
    """Emit the conjunction of two booleans of rank 0 before an operation."""
    choose: Callable[[ir.Operation, ir.Value, ir.Value, int | None], ir.Value]
    """Emit before an operation: a tensor of integers if the boolean is true, else a number in its shape.

    Without a number, each element is its position along the last axis.
    """
    true: Callable[[ir.Operation], ir.Value]
    """Emit the boolean true of rank 0 before an operation."""

    @property
    def names(self) -> set[str]:
        """The operations that are guarded."""
        return {*self.unsafe, self.loop}


def _guard(dialect: _Dialect) -> ModuleRewrite:
    def guard(module: ir.Operation) -> None:
        functions = functions_of(module)
        checks = {name: wanted for name, function in functions.items() if (wanted := check_results(function))}
        if not checks:
            return
        called = _unsafe_functions(functions, dialect)
        for name in called:
            block = functions[name].entry_block
            _guard_operations(block.owner.operation, _condition_argument(functions[name]), dialect, called)
        for name, wanted in checks.items():
            _guard_block(functions[name].entry_block, wanted, dialect, called)
        for call in operations(module, (_CALL,)):  # before the checks, or in functions without checks
            if _callee(call) in called and len(call.operands) < len(functions[_callee(call)].type.inputs):
                _pass(call, dialect.true(call))

    return guard


_CALL = "func.call"


def _callee(call: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _unsafe_functions(functions: Mapping[str, func_d.FuncOp], dialect: _Dialect) -> set[str]:
    """Return the private functions, such as outlined layers, with operations to guard, also in what they call."""
    private = {
        name: function
        for name, function in functions.items()
        if not function.is_external
        and "sym_visibility" in function.attributes
        and function.visibility.value == "private"
    }
    unsafe = {name for name, function in private.items() if operations(function.operation, dialect.names)}
    while more := {
        name
        for name, function in private.items()
        if name not in unsafe and any(_callee(call) in unsafe for call in operations(function.operation, (_CALL,)))
    }:
        unsafe |= more
    return unsafe


def _condition_argument(function: func_d.FuncOp) -> ir.Value:
    """Append an argument to ``function``, whether the checks before a call hold, and return it."""
    type_ = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1, function.context), loc=function.location)
    argument = function.entry_block.add_argument(type_, function.location)
    if "arg_attrs" in function.attributes:
        attributes = [*ir.ArrayAttr(function.attributes["arg_attrs"]), ir.DictAttr.get({}, function.context)]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes, function.context)
    update_function_type(function)
    return argument


def _pass(call: ir.Operation, condition: ir.Value) -> None:
    """Call a function of `_condition_argument` with ``condition``."""
    types, callee = [result.type for result in call.results], {"callee": call.attributes["callee"]}
    new = Emitter.before(call).op(_CALL, types, [*call.operands, condition], callee)
    replace(call, *new.results)


def _guard_block(block: ir.Block, checks: list[int], dialect: _Dialect, called: set[str]) -> None:
    """Guard the operations of ``block`` by the checks before them, which are moved to the start."""
    last = terminator(block)
    pending = {last.operands[position] for position in checks}
    _move_first(block, pending)
    holds = _all(
        [argument for argument in block.arguments if argument in pending], block.operations[0].operation, dialect
    )
    for op, following in pairwise(list(block.operations)):
        known = [result for result in op.results if result in pending]
        if holds is not None:
            _guard_operations(op.operation, holds, dialect, called)
        holds = _all([*([] if holds is None else [holds]), *known], following.operation, dialect)


def _move_first(block: ir.Block, values: set[ir.Value]) -> None:
    """Move the operations that decide ``values`` to the start of ``block``, in their order."""
    needed, order = set(values), [op.operation for op in block.operations]
    decides = [False] * len(order)
    for position, op in reversed(list(enumerate(order))):
        if any(result in needed for result in op.results):
            decides[position] = True
            needed.update(operand for inner in operations(op) for operand in inner.operands)
    first = order[decides.index(False)]  # there is the terminator
    for op in compress(order, decides):
        op.move_before(first)


def _all(conditions: Sequence[ir.Value], op: ir.Operation, dialect: _Dialect) -> ir.Value | None:
    """Emit the conjunction of ``conditions`` before ``op``; None without any."""
    return reduce(lambda a, b: dialect.both(op, a, b), conditions) if conditions else None


def _guard_operations(root: ir.Operation, holds: ir.Value, dialect: _Dialect, called: set[str]) -> None:
    """Guard the operations in ``root`` by the boolean ``holds``, and pass it to functions that are ``called``."""
    for op in operations(root, dialect.names | {_CALL}):
        if op.name != _CALL:
            _guard_operation(op, holds, dialect)
        elif _callee(op) in called:
            _pass(op, holds)


def _guard_operation(op: ir.Operation, holds: ir.Value, dialect: _Dialect) -> None:
    if op.name == dialect.loop:
        last = terminator(op.regions[0].blocks[0])
        last.operands[0] = dialect.both(last, last.operands[0], holds)
        return
    position, safe = dialect.unsafe[op.name]
    operand = op.operands[position]
    if not isinstance(ir.RankedTensorType(operand.type).element_type, ir.IntegerType):
        return
    if not (safe and _is_nonzero(operand)):  # sizes that constants divide stay known
        op.operands[position] = dialect.choose(op, holds, operand, safe)


def _is_nonzero(value: ir.Value) -> bool:
    """Return whether ``value`` is a constant of one repeated number other than 0."""
    if producer(value) not in ("stablehlo.constant", "tosa.const"):
        return False
    name = "value" if producer(value) == "stablehlo.constant" else "values"
    attribute = value.owner.attributes[name]
    if not isinstance(attribute, ir.DenseIntElementsAttr) or not attribute.is_splat:
        return False
    return ir.IntegerAttr(attribute.get_splat_value()).value != 0


def _boolean(op: ir.Operation) -> ir.Type:
    return ir.Type.parse("tensor<i1>", op.context)


def _stablehlo_choice(op: ir.Operation, condition: ir.Value, x: ir.Value, number: int | None) -> ir.Value:
    emit = StablehloOps.before(op)
    if None not in Emitter.shape(x):
        other = emit.dense_constant(str(number), x.type)
    elif number:
        other = emit.stablehlo("convert", x.type, emit.compare("EQ", x, x))
    else:
        other = emit.stablehlo("subtract", x.type, x, x)
    return emit.stablehlo("select", x.type, condition, x, other)


def _tosa_choice(op: ir.Operation, condition: ir.Value, x: ir.Value, number: int | None) -> ir.Value:
    emit = TosaOps.before(op)
    sizes = Emitter.shape(x)
    ones = [1] * len(sizes)
    if ones:
        condition = emit.value("tosa.reshape", emit.tensor(ones, "i1"), condition, emit.const_shape(ones))
    shape, values = ones, str(number or 0)
    if number is None and (length := sizes[-1]):
        shape, values = [*ones[1:], length], f"{'[' * len(ones)}{', '.join(map(str, range(length)))}{']' * len(ones)}"
    other = emit.const(emit.attribute(f"dense<{values}> : {emit.tensor(shape, Emitter.element(x))}"))
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
    lambda op: StablehloOps.before(op).dense_constant("true", _boolean(op)),
)
"""Gathers and slices clamp their indices; scatters ignore those out of range, which IREE does not."""

_TOSA = _Dialect(
    {"tosa.gather": (1, 0), "tosa.scatter": (1, None), "tosa.intdiv": (1, 1)},
    "tosa.while_loop",
    lambda op, a, b: TosaOps.before(op).value("tosa.logical_and", a.type, a, b),
    _tosa_choice,
    lambda op: TosaOps.before(op).const(ir.Attribute.parse("dense<true> : tensor<i1>", op.context)),
)
"""A scatter takes no index twice."""

guard_stablehlo = rewrite("fx-importer-guard-stablehlo")(_guard(_STABLEHLO))
guard_tosa = rewrite("fx-importer-guard-tosa")(_guard(_TOSA))
