"""Sums and differences of i64 in 64 bits: the C++ lowering computes them in 32."""

from __future__ import annotations

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Shape, replace
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.emit.torch_tosa import TorchTosaOps, tensor_type_of
from fx_importer.mlir.walk import rewrite

_INTEGERS = ("i1", "i8", "i16", "i32", "i64")
_OPERATIONS = {
    "torch.aten.add.Tensor": "tosa.add",
    "torch.aten.add.Scalar": "tosa.add",
    "torch.aten.sub.Tensor": "tosa.sub",
    "torch.aten.sub.Scalar": "tosa.sub",
}


@rewrite("fx-importer-i64-sums-to-tosa", ops=_OPERATIONS, emitter=TorchTosaOps)
def i64_sums_to_tosa(op: ir.Operation, emit: TorchTosaOps) -> None:
    """Lower sums and differences of i64 and constant ``alpha``; others are left to the C++ lowering."""
    shape, element = _type_of(op.results[0])
    left, right, alpha = op.operands
    factor = constant_of(alpha)
    if shape is None or element != "i64" or factor is None:
        return
    a, b = _builtin(emit, left, len(shape), 1), _builtin(emit, right, len(shape), factor)
    if a is None or b is None:
        return
    total = emit.value(_OPERATIONS[op.name], emit.tensor(shape, "i64"), a, b)
    replace(op, emit.value("torch_c.from_builtin_tensor", op.results[0].type, total))


def _type_of(value: ir.Value) -> tuple[Shape | None, str]:
    """Return the sizes and the builtin element type of a tensor of integers; None for any other value."""
    type_ = tensor_type_of(value)
    return type_ if type_ and type_[1] in _INTEGERS else (None, "")


def _builtin(emit: TorchTosaOps, value: ir.Value, rank: int, factor: int) -> ir.Value | None:
    """Return a tensor, or a constant, times ``factor``, as an i64 tensor of ``rank``; else None."""
    number = constant_of(value)
    if number is not None:
        return _constant(emit, number * factor, rank)
    shape, element = _type_of(value)
    if shape is None:
        return None
    tensor = emit.value("torch_c.to_builtin_tensor", emit.tensor(shape, element), value)
    if element != "i64":
        tensor = emit.value("tosa.cast", emit.tensor(shape, "i64"), tensor)
    if len(shape) < rank:
        wide = emit.reshape(tensor, [1] * (rank - len(shape)) + list(shape))
        if wide is None:
            return None
        tensor = wide
    if factor == 1:
        return tensor
    return emit.product(tensor.type, tensor, _constant(emit, factor, rank))


def _constant(emit: TorchTosaOps, number: int, rank: int) -> ir.Value:
    """Emit ``number``, wrapped to 64 bits, as a tensor of one element."""
    if not -(2**63) <= number < 2**63:
        number = (number + 2**63) % 2**64 - 2**63
    return emit.const_array(np.full([1] * rank, number, np.int64))
