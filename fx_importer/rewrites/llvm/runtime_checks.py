"""Runtime checks that turn failed assertions, divisions by zero and indices out of range into exceptions."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict

from fx_importer.diagnostics.assumption_messages import PREFIX
from fx_importer.diagnostics.mlir_diagnostics import read_location, user_frame
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import Emitter, producer, replace
from fx_importer.mlir.emit.llvm import POINTER, LlvmOps
from fx_importer.mlir.functions import body_of
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.llvm.entry_point import write_fact
from fx_importer.rewrites.llvm.operator_stubs import STUB_SUCCEEDED, operator_stubs_of

MESSAGES = "messages"
"""Name of a fact."""
INCONSISTENT = "the program is inconsistent"
"""How messages of checks begin that only a fault of a lowering fails."""
RUN = "__fx_importer_run"
"""The function that calls compiled code. It takes the addresses of a packed function and of its arguments; the number
of memref descriptors among these that it fills in, their addresses, and those of the tensors. It returns 0, or the
index of the failed check's message plus 1."""
_CHECK = "__fx_importer_check"
_JUMP = "__fx_importer_jump"

_CHECK_OPERATOR = "__fx_importer_check_operator"
_DIVISIONS = tuple(f"arith.{op}" for op in ("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui"))
_ACCESSES = {"memref.load": 0, "memref.store": 1}
"""The position of the buffer among the operands; the indices follow it."""
_SUSPECTS = {"cf.assert", *_DIVISIONS, *_ACCESSES}


@rewrite("fx-importer-relax-layout-casts")
def relax_layout_casts(module: ir.Operation) -> None:
    """Replace each ``memref.cast`` that changes only strides of axes of size 1 by a ``memref.reinterpret_cast``.

    MLIR casts results to the layout of the function's results, and its runtime verification compares those strides too.
    """
    for op in operations(module.operation, ("memref.cast",)):
        kinds = [value.type for value in (op.operands[0], op.results[0])]
        if not all(isinstance(kind, ir.MemRefType) for kind in kinds):
            continue
        (before, offset), (after, new) = (ir.MemRefType(kind).get_strides_and_offset() for kind in kinds)
        shape = ir.MemRefType(kinds[1]).shape
        differing = [size for size, a, b in zip(shape, before, after, strict=True) if a != b]
        if ir.MemRefType(kinds[0]).shape != shape or offset != new or any(size != 1 for size in differing):
            continue
        if differing:
            replace(op, _with_layout_of(ir.MemRefType(kinds[1]), op.operands[0], Emitter.before(op)))


def _with_layout_of(kind: ir.MemRefType, buffer: ir.Value, emit: Emitter) -> ir.Value:
    """Emit ``buffer`` as a value of ``kind``; dynamic offsets, sizes and strides stay as they are."""
    strides, offset = kind.get_strides_and_offset()
    types = [f"memref<{kind.element_type}>", *["index"] * (1 + 2 * kind.rank)]
    metadata = emit.op("memref.extract_strided_metadata", types, [buffer]).results
    numbers = {"static_offsets": [offset], "static_sizes": kind.shape, "static_strides": strides}
    dynamic = {ir.ShapedType.get_dynamic_size(), ir.ShapedType.get_dynamic_stride_or_offset()}
    values = iter([*metadata][1:])
    known = [zip(static, itertools.islice(values, len(static)), strict=True) for static in numbers.values()]
    passed = [[value for number, value in pairs if number in dynamic] for pairs in known]
    attributes = {key: emit.array(static) for key, static in numbers.items()}
    attributes["operandSegmentSizes"] = emit.segments(1, *map(len, passed))
    return emit.op("memref.reinterpret_cast", [kind], [buffer, *itertools.chain(*passed)], attributes).result


@rewrite("fx-importer-insert-checks")
def insert_checks(module: ir.Operation) -> None:
    """Insert the checks that depend on elements of tensors into a module of loops.

    The fact `MESSAGES` of the module is the message of each. The pass also adds the function `RUN`.
    """
    operators = {ir.FlatSymbolRefAttr.get(name, module.context) for name in operator_stubs_of(module)}
    checks = Checks()
    checks.insert_all(module)
    emit = LlvmOps(ir.InsertionPoint(body_of(module)), ir.Location.unknown(module.context))
    _define_runtime(emit)
    if operators:
        _define_operator_check(emit)
    write_fact(module, MESSAGES, checks.messages)


def _define_runtime(emit: LlvmOps) -> None:
    """Define `RUN`, and the function of a check.

    A check may fail inside of nested loops: setjmp and longjmp leave all of them. Memory allocated before is leaked.
    The jump buffer is a global: calls must be serialized.
    """
    emit.define_zeros(_JUMP, "!llvm.array<64 x i64>", alignment=64)
    emit.declare_llvm("_setjmp", [POINTER], "i32", "returns_twice")
    emit.declare_llvm("longjmp", [POINTER, "i32"], "void", "noreturn")

    check, (holds, code) = emit.define_function(_CHECK, ["i1", "i32"])
    passed, failed = check.branch(holds)
    passed.op("func.return", [])
    failed.call_llvm("longjmp", [], [failed.address_of(_JUMP), code])
    failed.op("llvm.unreachable", [])

    takes = [POINTER, POINTER, "i64", POINTER, POINTER]
    run, (function, arguments, count, descriptors, tensors) = emit.define_llvm(RUN, takes, "i32", linkage="external")

    def fill_in(inside: LlvmOps, index: ir.Value) -> None:
        descriptor, tensor = (
            inside.value("llvm.load", POINTER, inside.word(word, index)) for word in (descriptors, tensors)
        )
        for field in range(2):  # the allocated and the aligned pointer
            inside.op("llvm.store", [], [tensor, inside.word(descriptor, inside.constant(field, "i64"))])

    run = run.repeat(count, fill_in)
    code = run.call_llvm("_setjmp", ["i32"], [run.address_of(_JUMP)]).result
    first, again = run.branch(run.compare("eq", code, run.constant(0, "i32")))
    first.call_llvm(function, [], [arguments])
    for end in (first, again):
        end.op("llvm.return", [], [code])


def _define_operator_check(emit: LlvmOps) -> None:
    """Define the check after the call of an operator."""
    emit.declare_llvm(STUB_SUCCEEDED, [], "i1")
    inside, (code,) = emit.define_function(_CHECK_OPERATOR, ["i32"])
    inside.call_function(_CHECK, [], [inside.call_llvm(STUB_SUCCEEDED, ["i1"], []).result, code])
    inside.op("func.return", [])


class Checks:
    """Inserts checks before operations, or after the call of an operator."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._asserted: defaultdict[ir.Value, list[ir.Block]] = defaultdict(list)
        self._data: dict[ir.Value, bool] = {}

    @property
    def messages(self) -> list[str]:
        """The messages, in the order of their numbers."""
        return [*self._numbers]

    def insert_all(self, module: ir.Operation) -> None:
        """Insert the checks of ``module``."""
        operators = {ir.FlatSymbolRefAttr.get(name, module.context) for name in operator_stubs_of(module)}
        for op in operations(module.operation, {*_SUSPECTS, "func.call"}):
            if op.name != "func.call" or op.attributes["callee"] in operators:
                self._insert(op)

    def _insert(self, op: ir.Operation) -> None:
        emit = ArithOps.before(op)
        if op.name == "func.call":
            emit = ArithOps(ir.InsertionPoint.after(op), op.location)
            code = self._message_code(emit, "an operator that PyTorch runs raised an exception")
            emit.call_function(_CHECK_OPERATOR, [], [code])
        elif op.name == "cf.assert":
            if not self._is_asserted(op):
                self.check(emit, op.operands[0], _failure_message(ir.StringAttr(op.attributes["msg"]).value))
            op.erase()
        elif op.name in _DIVISIONS:
            divisor = op.operands[1]
            if not _is_nonzero(divisor):
                zero = emit.constant_integer(0, divisor.type)
                self.check(emit, emit.compare_integers("ne", divisor, zero), "integer division by zero")
        else:
            buffer, *indices = list(op.operands)[_ACCESSES[op.name] :]
            for axis, index in enumerate(indices):
                if self._depends_on_data(index):
                    fits = emit.compare_integers("ult", index, emit.index(emit.size(buffer, axis)))
                    self.check(emit, fits, _out_of_range(str(buffer.type)))

    def check(self, emit: ArithOps, holds: ir.Value, message: str) -> None:
        """Emit the check that ``holds``, or else the call ends with ``message``."""
        emit.call_function(_CHECK, [], [holds, self._message_code(emit, message)])

    def _message_code(self, emit: ArithOps, message: str) -> ir.Value:
        """Return a constant with the index of ``message`` plus 1: equal messages share one, and so do equal loops."""
        return emit.constant_integer(self.number_of(self.located(emit, message)), emit.type("i32"))

    def number_of(self, message: str) -> int:
        """Return the index of ``message`` plus 1."""
        return self._numbers.setdefault(message, len(self._numbers) + 1)

    def _is_asserted(self, op: ir.Operation) -> bool:
        """Return whether an assertion of the same value is before ``op``, in its block or in one around it."""
        blocks = self._asserted[op.operands[0]]
        block = op.block
        while block not in blocks and block.owner.operation.name != "func.func":
            block = block.owner.operation.block
        blocks.append(op.block)
        return block in blocks[:-1]

    @staticmethod
    def located(emit: ArithOps, message: str) -> str:
        """Return ``message`` with the line of the user's code, which that of an assumption has."""
        frames, _ = read_location(emit.location)
        if not message.startswith(PREFIX) and (frame := user_frame(frames)):
            message += f" (at {frame[0]}:{frame[1]})"
        return message

    def _depends_on_data(self, value: ir.Value) -> bool:
        """Whether ``value`` depends on elements of tensors, not only on induction variables and sizes."""
        if value not in self._data:
            owner = value.owner
            if isinstance(owner, ir.Block):
                self._data[value] = not isinstance(value.type, ir.IndexType)
            elif owner.name in ("arith.constant", "memref.dim", "affine.apply"):
                self._data[value] = False
            else:
                self._data[value] = not owner.name.startswith("arith.") or any(
                    map(self._depends_on_data, owner.operands)
                )
        return self._data[value]


def _failure_message(message: str) -> str:
    """Return the message of an assertion, without the operation that messages of the runtime verification quote."""
    parsed = re.search(r"^(?P<op>.*)\n\^ (?P<reason>.*)$", message, re.MULTILINE)
    if parsed is None:
        return message
    if re.match(r"out-of-bounds access$|offset \d+ is out-of-bounds|subview runs out-of-bounds", parsed["reason"]):
        return _out_of_range(parsed["op"])
    return f"{INCONSISTENT}, {parsed['reason']} of {parsed['op']:.100}"


def _is_nonzero(divisor: ir.Value) -> bool:
    """Return whether ``divisor`` is a constant, or the maximum of one that is positive."""
    if producer(divisor) == "arith.maxsi":
        return any(
            producer(value) == "arith.constant" and ir.IntegerAttr(value.owner.attributes["value"]).value > 0
            for value in divisor.owner.operands
        )
    return producer(divisor) == "arith.constant"


def _out_of_range(buffer: str) -> str:
    shape = re.search(r"memref<([\dx?]*)x", buffer)
    return f"an index is out of range for a tensor of shape [{', '.join(shape[1].split('x')) if shape else ''}]"
