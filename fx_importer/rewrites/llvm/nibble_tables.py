"""Functions of four bits of a byte, as weights in 4 bits are unpacked by, on vectors.

AVX-512 has an instruction that takes 16 elements from a register by the low four bits of 16 integers. So the weights in
the low and in the high bits of 16 bytes take an extension, a shift and two of these, whatever the function is. AVX2 has
none, and does not shift bytes: there, linear functions extend bytes before they take bits, and add a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import producer

_LANES = 16
"""Of a vector of AVX-512."""
Values = npt.NDArray[Any]
"""What an operation returns for the bytes 0 to 255: signed integers in 64 bits, or float32."""


@dataclass(frozen=True)
class NibbleTable:
    """A function, to float32, of the low or of the high bits of a byte."""

    byte: ir.Value
    values: tuple[float, ...]
    """For 0 to 15."""
    is_high: bool

    def emit(self, emit: ArithOps, bytes_: ir.Value) -> ir.Value:
        """Emit the function of a vector of bytes."""
        (lanes,) = ir.VectorType(bytes_.type).shape
        integers, floats = (emit.type(f"vector<{lanes}x{element}>") for element in ("i32", "f32"))

        def constant(kind: ir.Type, *values: float) -> ir.Value:
            spelled = str(values[0]) if len(values) == 1 else f"[{', '.join(f'{value:e}' for value in values)}]"
            attribute = emit.attribute(f"dense<{spelled}> : {kind}")
            return emit.op("arith.constant", [kind], (), {"value": attribute}).result

        numbers = emit.value("arith.extui", integers, bytes_)
        if self.is_high:
            numbers = emit.value("arith.shrui", integers, numbers, constant(integers, 4))
        if lanes == _LANES:
            attributes = {
                "intrin": ir.StringAttr.get("llvm.x86.avx512.permvar.sf.512", emit.context),
                "operandSegmentSizes": emit.segments(2, 0),
                "op_bundle_sizes": emit.segments(),
            }
            operands = [constant(floats, *self.values), numbers]
            return emit.op("llvm.call_intrinsic", [floats], operands, attributes).result
        if not self.is_high:
            numbers = emit.value("arith.andi", integers, numbers, constant(integers, 15))
        return emit.value(
            "arith.addf", floats, emit.value("arith.sitofp", floats, numbers), constant(floats, self.values[0])
        )

    def is_emitted(self, lanes: int) -> bool:
        """Return whether `emit` has a form for vectors of ``lanes`` bytes."""
        return lanes == _LANES or self.values == tuple(self.values[0] + number for number in range(16))


def nibble_tables(body: Sequence[ir.Operation], lanes: int) -> dict[ir.Value, NibbleTable]:
    """Return the tables of the results of ``body`` that are functions of four bits of a byte it loads.

    They can be emitted for vectors of ``lanes`` bytes.
    """
    known: dict[ir.Value, tuple[ir.Value, Values]] = {}
    """By result: the byte that it depends on, and what it is for each."""
    tables: dict[ir.Value, NibbleTable] = {}
    for op in body:
        result = op.results[0] if op.results else None
        if result is None:
            continue
        if op.name == "memref.load" and str(result.type) == "i8":
            known[result] = result, np.arange(256).astype(np.int8).astype(np.int64)
        elif op.name in _EVALUATE:
            operands = [known.get(operand) or _constant(operand) for operand in op.operands]
            bytes_ = {operand[0] for operand in operands if operand is not None and operand[0] is not None}
            if None in operands or len(bytes_) != 1 or str(result.type) not in ("i8", "i32", "f32"):
                continue
            (byte,) = bytes_
            values = _EVALUATE[op.name](*(operand[1] for operand in operands if operand is not None))
            if isinstance(result.type, ir.IntegerType):
                values = values.astype(f"int{result.type.width}").astype(np.int64)
            known[result] = byte, values
            if str(result.type) != "f32":
                continue
            for is_high, numbers in ((False, np.arange(256) & 15), (True, np.arange(256) & 240)):
                if np.array_equal(values, values[numbers]):
                    table = values[:256:16] if is_high else values[:16]
                    tables[result] = NibbleTable(byte, tuple(map(float, table)), is_high)
    return {result: table for result, table in tables.items() if table.is_emitted(lanes)}


def _constant(value: ir.Value) -> tuple[None, Values] | None:
    if producer(value) != "arith.constant" or str(value.type) not in ("i8", "i32", "f32"):
        return None
    attribute = value.owner.attributes["value"]
    if isinstance(value.type, ir.F32Type):
        return None, np.full(256, ir.FloatAttr(attribute).value, np.float32)
    return None, np.full(256, ir.IntegerAttr(attribute).value, np.int64)


_EVALUATE: dict[str, Callable[..., Values]] = {
    "arith.andi": np.bitwise_and,
    "arith.extsi": lambda x: x,
    "arith.shrsi": np.right_shift,
    "arith.sitofp": lambda x: x.astype(np.float32),
    "arith.subf": np.subtract,
    "arith.trunci": lambda x: x,
}
