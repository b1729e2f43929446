"""Divides a TOSA program into parts for the NPU and parts for the processor next to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import terminator
from fx_importer.mlir.functions import function_named

_CONSTANTS = ("tosa.const", "tosa.const_shape")
"""Operations that every part with a use of them has a copy of."""
_INTEGERS = ("i8", "i16", "i32", "i48")
"""Element types that an NPU computes with."""


@dataclass(frozen=True)
class ProgramPart:
    """Operations of a function that run together, in order: on the NPU, or on the processor."""

    name: str
    """The name of its function: ``npu_0``, ``cpu_1``, in the order of calls."""
    on_npu: bool
    operations: tuple[ir.Operation, ...]
    inputs: tuple[ir.Value, ...]
    """Arguments of the program and results of earlier parts."""
    outputs: tuple[ir.Value, ...]
    """Values that later parts or the caller of the program read."""

    def add_function(self, module: ir.Module, name: str) -> None:
        """Add a function with copies of the operations to ``module``, of the same context."""
        types = ([value.type for value in self.inputs], [value.type for value in self.outputs])
        with ir.Location.unknown(module.context):
            function = func_d.FuncOp(name, types, visibility="public", ip=ir.InsertionPoint(module.body))
            block = function.add_entry_block()
            values = dict(zip(self.inputs, block.arguments, strict=True))
            with ir.InsertionPoint(block):
                for op in self.operations:
                    _copy(op, values)
                func_d.ReturnOp([values[value] for value in self.outputs])

    def module(self) -> ir.Module:
        """Return a module with the part as function ``main``."""
        module = ir.Module.create(ir.Location.unknown(self.operations[0].context))
        self.add_function(module, "main")
        return module


def _copy(op: ir.Operation, values: dict[ir.Value, ir.Value]) -> None:
    for operand in op.operands:
        if operand not in values:  # a constant
            _copy(operand.owner, values)
    copy = op.clone()
    for number, operand in enumerate(op.operands):
        copy.operands[number] = values[operand]
    values.update(zip(op.results, copy.results, strict=True))


def divide(module: ir.Module, on_processor: Callable[[ir.Operation], bool]) -> list[ProgramPart]:
    """Divide the function ``main``: into as few parts as the order of operations allows, which alternate."""
    function = function_named(module, "main")
    levels: dict[ir.Operation, int] = {}
    for op in _computing(function):
        on_cpu = on_processor(op)
        producers = [levels[owner] for owner in _owners(op) if owner in levels]
        level = max(producers, default=0)
        levels[op] = level + ((level % 2 == 1) != on_cpu)
    returned = program_results(module)
    parts: list[ProgramPart] = []
    for level in sorted(set(levels.values())):
        members = tuple(op for op in levels if levels[op] == level)
        parts.append(_part(members, level % 2 == 0, len(parts), returned))
    return parts


def part_of(operations: Sequence[ir.Operation]) -> ProgramPart:
    """Return ``operations`` of one block as a part. Its outputs are the results that other operations read, or none."""
    return _part(tuple(operations), True, 0, ())


def runs_in_integers(op: ir.Operation) -> bool:
    """Return whether the NPU has the types of ``op``, and it is neither a loop nor a branch."""
    types = [value.type for value in (*op.operands, *op.results)]
    return not op.regions and all(
        str(kind.element_type) in _INTEGERS for kind in types if isinstance(kind, ir.RankedTensorType)
    )


def program_results(module: ir.Module) -> list[ir.Value]:
    """Return what the function ``main`` returns."""
    return list(terminator(function_named(module, "main").entry_block).operands)


def _computing(function: func_d.FuncOp) -> Iterable[ir.Operation]:
    returned = set(terminator(function.entry_block).operands)
    for op in function.entry_block:
        operation = op.operation
        if operation.name == "func.return":
            continue
        if operation.name not in _CONSTANTS or any(result in returned for result in operation.results):
            yield operation


def _owners(op: ir.Operation) -> list[ir.Operation]:
    return [operand.owner for operand in op.operands if not isinstance(operand.owner, ir.Block)]


def _part(members: tuple[ir.Operation, ...], on_npu: bool, number: int, returned: Sequence[ir.Value]) -> ProgramPart:
    inside, results = set(members), [result for op in members for result in op.results]
    read = dict.fromkeys(value for op in members for value in op.operands if not _is_within(value, inside))
    users = {result: [use.owner.operation for use in result.uses] for result in results}
    outputs = tuple(
        result
        for result in results
        if result in returned or not users[result] or any(user not in inside for user in users[result])
    )
    return ProgramPart(f"{'npu' if on_npu else 'cpu'}_{number}", on_npu, members, tuple(read), outputs)


def _is_within(value: ir.Value, members: set[ir.Operation]) -> bool:
    owner = value.owner
    return not isinstance(owner, ir.Block) and (owner in members or owner.name in _CONSTANTS)
