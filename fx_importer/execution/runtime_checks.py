"""Runtime checks that turn failed assertions, divisions by zero and indices out of range into exceptions."""

from __future__ import annotations

import re

from fx_importer.diagnostics.mlir_diagnostics import read_location, user_frame
from fx_importer.execution.stubs import STUB_SUCCEEDED, operator_stubs_of
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Emitter, producer, replace
from fx_importer.mlir.emit_arith import ArithOps
from fx_importer.mlir.walk import operations

RUN = "__fx_importer_run"
"""The function that calls compiled code. It takes the addresses of a packed function and of its arguments, and returns
0, or the index of the failed check's message plus 1."""
_CHECK = "__fx_importer_check"
_JUMP = "__fx_importer_jump"

# A check may fail inside of nested loops: setjmp and longjmp leave all of them. Memory allocated before is leaked. The
# jump buffer is a global: calls must be serialized.
_RUNTIME = f"""
llvm.mlir.global internal @{_JUMP}() {{alignment = 64 : i64}} : !llvm.array<64 x i64> {{
  %0 = llvm.mlir.zero : !llvm.array<64 x i64>
  llvm.return %0 : !llvm.array<64 x i64>
}}
llvm.func @_setjmp(!llvm.ptr) -> i32 attributes {{passthrough = ["returns_twice"]}}
llvm.func @longjmp(!llvm.ptr, i32) attributes {{passthrough = ["noreturn"]}}
func.func private @{_CHECK}(%holds: i1, %code: i32) {{
  cf.cond_br %holds, ^return, ^leave
^leave:
  %jump = llvm.mlir.addressof @{_JUMP} : !llvm.ptr
  llvm.call @longjmp(%jump, %code) : (!llvm.ptr, i32) -> ()
  llvm.unreachable
^return:
  return
}}
llvm.func @{RUN}(%function: !llvm.ptr, %arguments: !llvm.ptr) -> i32 {{
  %jump = llvm.mlir.addressof @{_JUMP} : !llvm.ptr
  %code = llvm.call @_setjmp(%jump) : (!llvm.ptr) -> i32
  %zero = llvm.mlir.constant(0 : i32) : i32
  %first = llvm.icmp "eq" %code, %zero : i32
  llvm.cond_br %first, ^call, ^return
^call:
  llvm.call %function(%arguments) : !llvm.ptr, (!llvm.ptr) -> ()
  llvm.br ^return
^return:
  llvm.return %code : i32
}}
"""
_CHECK_OPERATOR = "__fx_importer_check_operator"
_AFTER_OPERATORS = f"""
llvm.func @{STUB_SUCCEEDED}() -> i1
func.func private @{_CHECK_OPERATOR}(%code: i32) {{
  %fine = llvm.call @{STUB_SUCCEEDED}() : () -> i1
  func.call @{_CHECK}(%fine, %code) : (i1, i32) -> ()
  return
}}
"""
_DIVISIONS = tuple(f"arith.{op}" for op in ("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui"))
_ACCESSES = {"memref.load": 0, "memref.store": 1}
"""The position of the buffer among the operands; the indices follow it."""
_SUSPECTS = {"cf.assert", *_DIVISIONS, *_ACCESSES}


def relax_layout_casts(module: ir.Module) -> None:
    """Replace each ``memref.cast`` that changes only strides of axes of size 1 by a ``memref.reinterpret_cast``.

    MLIR casts results to the layout of the function's results, and its runtime verification compares those strides too.
    """
    for op in operations(module.operation, ("memref.cast",)):
        kinds = [each.type for each in (op.operands[0], op.results[0])]
        if not all(isinstance(each, ir.MemRefType) and each.has_static_shape for each in kinds):
            continue
        (before, offset), (after, new) = (ir.MemRefType(each).get_strides_and_offset() for each in kinds)
        shape = ir.MemRefType(kinds[1]).shape
        differing = [size for size, a, b in zip(shape, before, after, strict=True) if a != b]
        if offset != new or not differing or any(size != 1 for size in differing):
            continue
        numbers = {"static_offsets": [offset], "static_sizes": shape, "static_strides": after}
        emit = Emitter.before(op)
        attributes = {key: emit.array(each) for key, each in numbers.items()}
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 0, 0, 0], op.context)
        replace(op, emit.op("memref.reinterpret_cast", [kinds[1]], [op.operands[0]], attributes).result)


def insert_checks(module: ir.Module) -> list[str]:
    """Insert the checks that depend on elements of tensors into a module of loops; return the message of each.

    It also adds the function `RUN`.
    """
    operators = {ir.FlatSymbolRefAttr.get(name, module.context) for name in operator_stubs_of(module)}
    checks = _Checks()
    for op in operations(module.operation, {*_SUSPECTS, "func.call"}):
        if op.name != "func.call" or op.attributes["callee"] in operators:
            checks.insert(op)
    for op in ir.Module.parse(_RUNTIME + (_AFTER_OPERATORS if operators else ""), module.context).body:
        module.body.append(op.clone())
    return checks.messages


class _Checks:
    """Inserts checks before operations, or after the call of an operator."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._data: dict[ir.Value, bool] = {}

    def insert(self, op: ir.Operation) -> None:
        emit = ArithOps.before(op)
        if op.name == "func.call":
            emit = ArithOps(ir.InsertionPoint.after(op), op.location)
            _call(emit, _CHECK_OPERATOR, self._message_code(emit, "an operator that PyTorch runs raised an exception"))
        elif op.name == "cf.assert":
            self._check(emit, op.operands[0], _failure_message(ir.StringAttr(op.attributes["msg"]).value))
            op.erase()
        elif op.name in _DIVISIONS:
            divisor = op.operands[1]
            if producer(divisor) != "arith.constant":
                zero = emit.constant_integer(0, divisor.type)
                self._check(emit, emit.compare_integers("ne", divisor, zero), "integer division by zero")
        else:
            buffer, *indices = list(op.operands)[_ACCESSES[op.name] :]
            for axis, index in enumerate(indices):
                if self._depends_on_data(index):
                    self._check_index(emit, index, buffer, axis)

    def _check_index(self, emit: ArithOps, index: ir.Value, buffer: ir.Value, axis: int) -> None:
        buffer_type = ir.MemRefType(buffer.type)
        if buffer_type.is_dynamic_dim(axis):
            size = emit.value("memref.dim", "index", buffer, emit.index(axis))
        else:
            size = emit.index(buffer_type.get_dim_size(axis))
        self._check(emit, emit.compare_integers("ult", index, size), _out_of_range(str(buffer_type)))

    def _check(self, emit: ArithOps, holds: ir.Value, message: str) -> None:
        _call(emit, _CHECK, holds, self._message_code(emit, message))

    def _message_code(self, emit: ArithOps, message: str) -> ir.Value:
        """Return a constant with the index of ``message`` plus 1."""
        frames, _ = read_location(emit.location)
        if frame := user_frame(frames):
            message += f" (at {frame[0]}:{frame[1]})"
        self.messages.append(message)
        return emit.constant_integer(len(self.messages), emit.type("i32"))

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


def _call(emit: Emitter, function: str, *operands: ir.Value) -> None:
    emit.op("func.call", [], operands, {"callee": ir.FlatSymbolRefAttr.get(function, emit.context)})


def _failure_message(message: str) -> str:
    """Return the message of an assertion; those of the runtime verification quote the operation, which is left out."""
    found = re.search(r"^(?P<op>.*)\n\^ (?P<reason>.*)$", message, re.MULTILINE)
    if found is None:
        return message
    if found["reason"] == "out-of-bounds access" or re.match(r"offset \d+ is out-of-bounds", found["reason"]):
        return _out_of_range(found["op"])
    return f"the program is inconsistent, {found['reason']} of {found['op']:.100}"


def _out_of_range(buffer: str) -> str:
    shape = re.search(r"memref<([\dx?]*)x", buffer)
    return f"an index is out of range for a tensor of shape [{', '.join(shape[1].split('x')) if shape else ''}]"
