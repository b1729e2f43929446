"""Checks that end a call with a status, in place of an abort or an exception."""

from __future__ import annotations

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import Emitter
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.llvm.entry_point import entry_point, write_fact
from fx_importer.rewrites.llvm.runtime_checks import MESSAGES, Checks

STATUS = "fx_importer.status"
"""The attribute of a ``cf.assert`` with the status that the function returns if it fails: an i32."""
FIRST_STATUS = 32
"""The status of the first check of the model; smaller ones are of calls (`fx_importer.native.header`)."""


class _StatusChecks(Checks):
    """Inserts assertions with a status."""

    def check(self, emit: ArithOps, holds: ir.Value, message: str) -> None:
        message = self.located(emit, message)
        status = FIRST_STATUS + self.number_of(message) - 1
        emit.op(
            "cf.assert",
            [],
            [holds],
            {
                "msg": ir.StringAttr.get(message, emit.context),
                STATUS: ir.IntegerAttr.get(ir.IntegerType.get_signless(32, emit.context), status),
            },
        )


@rewrite("fx-importer-insert-status-checks")
def insert_status_checks(module: ir.Operation) -> None:
    """Insert the checks that depend on elements of tensors, as ``cf.assert`` with `STATUS`, into a module of loops.

    The fact `MESSAGES` of the module is the message of each status, from `FIRST_STATUS` on.
    """
    checks = _StatusChecks()
    checks.insert_all(module)
    write_fact(module, MESSAGES, checks.messages)


@rewrite("fx-importer-return-status")
def return_status(module: ir.Operation) -> None:
    """Have functions with assertions, and their callers, return a status: of an assertion that fails, or else 0.

    The entry point always returns one. Runs when control flow is in blocks: an assertion ends the function.
    """
    functions = {name: op for name, op in functions_of(module).items() if not op.is_external}
    calls: dict[str, list[ir.Operation]] = {}
    for call in operations(module, ("func.call",)):
        calls.setdefault(ir.FlatSymbolRefAttr(call.attributes["callee"]).value, []).append(call)
    failing = {name for name, op in functions.items() if operations(op.operation, ("cf.assert",))}
    pending = list(failing)
    while pending:
        for call in calls.get(pending.pop(), ()):
            name = _function_around(call).name.value
            if name not in failing:
                failing.add(name)
                pending.append(name)
    failing.add(entry_point(module).name.value)
    with module.context:
        i32 = ir.IntegerType.get_signless(32)
        for name in failing:
            function = functions[name]
            if function.type.results:
                raise ValueError(f"the function {name} returns values, and checks")
            for call in calls.get(name, ()):
                emit = Emitter.before(call)
                new = emit.op("func.call", [i32], list(call.operands), {"callee": call.attributes["callee"]})
                checked = ArithOps.before(call)
                holds = checked.compare_integers("eq", new.result, checked.constant_integer(0, i32))
                checked.op("cf.assert", [], [holds], {"msg": ir.StringAttr.get(_OF_CALL)})
                call.erase()
            kind = ir.FunctionType.get(function.type.inputs, [i32])
            function.attributes["function_type"] = ir.TypeAttr.get(kind)
        for name in failing:
            _branch(functions[name], i32)


_OF_CALL = "status"


def _function_around(op: ir.Operation) -> func_d.FuncOp:
    while not isinstance(op.opview, func_d.FuncOp):
        op = op.parent.operation
    return op.opview


def _branch(function: func_d.FuncOp, i32: ir.Type) -> None:
    """Return 0 at the end of ``function``, and the status of an assertion that fails at once."""
    for op in operations(function.operation, ("func.return",)):
        emit = ArithOps.before(op)
        emit.op("func.return", [], [emit.constant_integer(0, i32)])
        op.erase()
    asserts = operations(function.operation, ("cf.assert",))
    if not asserts:
        return
    failed = function.body.blocks.append(i32, arg_locs=[function.location])
    ArithOps(ir.InsertionPoint(failed), function.location).op("func.return", [], [failed.arguments[0]])
    for op in asserts:
        block = op.block
        emit = ArithOps.before(op)
        if STATUS in op.attributes:
            status = emit.constant_integer(ir.IntegerAttr(op.attributes[STATUS]).value, i32)
        else:  # of a call: the condition compares it with 0
            status = op.operands[0].owner.operands[0]
        rest = block.create_after()
        following = list(block)
        for moved in following[[op.operation for op in following].index(op) + 1 :]:
            rest.append(moved)
        ir.Operation.create(
            "cf.cond_br",
            operands=[op.operands[0], status],
            attributes={"operandSegmentSizes": emit.segments(1, 0, 1)},
            successors=[rest, failed],
            loc=op.location,
            ip=emit.point,
        )
        op.erase()
