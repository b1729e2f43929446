"""Sums and differences of 64-bit integers, in 64 bits: the C++ lowering computes them in 32."""

from __future__ import annotations

import re

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Emitter, constant_of

_TENSOR = re.compile(r"!torch\.vtensor<\[(?P<sizes>[\d,]*)\],(?P<element>i1|si8|si16|si32|si64)>")
_OPERATIONS = {
    "torch.aten.add.Tensor": "tosa.add",
    "torch.aten.add.Scalar": "tosa.add",
    "torch.aten.sub.Tensor": "tosa.sub",
    "torch.aten.sub.Scalar": "tosa.sub",
}


def long_sums_to_tosa(module: ir.Operation) -> None:
    """Lower sums and differences of 64-bit integers of known sizes, by known factors; others are left to C++."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name in _OPERATIONS:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(visit)
    for op in found:
        _lower(op)


def _lower(op: ir.Operation) -> None:
    shape, element = _type_of(op.results[0])
    left, right, alpha = op.operands
    factor = constant_of(alpha)
    if shape is None or element != "i64" or factor is None:
        return
    emit = Emitter(ir.InsertionPoint(op), op.location)
    a, b = _builtin(emit, left, len(shape), 1), _builtin(emit, right, len(shape), factor)
    if a is None or b is None:
        return
    total = emit.value(_OPERATIONS[op.name], _type(emit, shape), a, b)
    op.results[0].replace_all_uses_with(emit.value("torch_c.from_builtin_tensor", op.results[0].type, total))
    op.erase()


def _type_of(value: ir.Value) -> tuple[list[int] | None, str]:
    """Return the sizes and the element type of a tensor of integers of known sizes."""
    found = _TENSOR.fullmatch(str(value.type))
    if found is None:
        return None, ""
    return [int(size) for size in found["sizes"].split(",") if size], found["element"].removeprefix("s")


def _builtin(emit: Emitter, value: ir.Value, rank: int, factor: int) -> ir.Value | None:
    """Return a tensor, or a known number, times ``factor``, as TOSA's tensor of ``rank``; None if it is neither."""
    number = constant_of(value)
    if number is not None:
        return _constant(emit, number * factor, rank)
    shape, element = _type_of(value)
    if shape is None:
        return None
    tensor = emit.value("torch_c.to_builtin_tensor", _type(emit, shape, element), value)
    if element != "i64":
        tensor = emit.value("tosa.cast", _type(emit, shape), tensor)
    if len(shape) < rank:
        shape = [1] * (rank - len(shape)) + shape
        sizes = ir.Attribute.parse(f"dense<{shape}> : tensor<{rank}xindex>", emit.context)
        size = emit.op("tosa.const_shape", [f"!tosa.shape<{rank}>"], (), {"values": sizes}).result
        tensor = emit.value("tosa.reshape", _type(emit, shape), tensor, size)
    if factor == 1:
        return tensor
    zero = ir.DenseElementsAttr.get(np.zeros(1, np.int8), context=emit.context)
    shift = emit.op("tosa.const", ["tensor<1xi8>"], (), {"values": zero}).result
    return emit.value("tosa.mul", tensor.type, tensor, _constant(emit, factor, rank), shift)


def _type(emit: Emitter, shape: list[int], element: str = "i64") -> ir.Type:
    return emit.type(f"tensor<{''.join(f'{size}x' for size in shape)}{element}>")


def _constant(emit: Emitter, number: int, rank: int) -> ir.Value:
    if not -(2**63) <= number < 2**63:
        number = (number + 2**63) % 2**64 - 2**63
    values = ir.DenseElementsAttr.get(np.full([1] * rank, number, np.int64), context=emit.context)
    return emit.op("tosa.const", [values.type], (), {"values": values}).result
