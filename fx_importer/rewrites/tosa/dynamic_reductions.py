"""Reductions of tensors with several dynamic sizes: the C++ lowerings drop an axis by a reshape that infers all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import is_used, producer, with_element
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.emit.torch_tosa import list_of, tensor_type_of
from fx_importer.mlir.emit.tosa_sizes import TosaSizeOps

_FLOATS = ("f16", "bf16", "f32")

Lowering = Callable[[ir.Operation, TosaSizeOps], "Sequence[ir.Value] | None"]
"""Returns the results of an operation as builtin tensors; None for what it does not lower."""


def _reduction(name: str, keepdim: int) -> Lowering:
    """Return the lowering of a reduction along an axis, or a list of them, whose operand ``keepdim`` is the flag."""

    def lower(op: ir.Operation, emit: TosaSizeOps) -> Sequence[ir.Value] | None:
        x, axes, kept = emit.builtin(op.operands[0]), _axes(op), constant_of(op.operands[keepdim])
        kind = tensor_type_of(op.results[0])
        if x is None or axes is None or kept is None or kind is None or not _has_several_dynamic_sizes(emit, x):
            return None
        if emit.element(x) != kind[1]:  # sums of bools and narrow integers
            if emit.element(x) in _FLOATS or kind[1] in _FLOATS:
                return None
            x = emit.cast_element(x, kind[1])
        return [_reduced(emit, name, x, axes, bool(kept))]

    return lower


def _extremum(name: str, negated: bool) -> Lowering:
    """Return the lowering of an extremum along an axis, and its position."""

    def lower(op: ir.Operation, emit: TosaSizeOps) -> Sequence[ir.Value] | None:
        x, axes, kept = emit.builtin(op.operands[0]), _axes(op), constant_of(op.operands[2])
        if x is None or axes is None or kept is None or not _has_several_dynamic_sizes(emit, x):
            return None
        value = _reduced(emit, name, x, axes, bool(kept))
        if emit.element(x) not in _FLOATS:
            if is_used(op.results[1]):  # positions of wide integers are decomposed before
                return None
            x = emit.cast_element(x, "f32")
        return [value, _position(emit, x, axes[0], bool(kept), negated)]

    return lower


def _position_of(negated: bool) -> Lowering:
    def lower(op: ir.Operation, emit: TosaSizeOps) -> Sequence[ir.Value] | None:
        x, axes, kept = emit.builtin(op.operands[0]), _axes(op), constant_of(op.operands[2])
        if x is None or axes is None or kept is None or emit.element(x) not in _FLOATS:
            return None
        return [_position(emit, x, axes[0], bool(kept), negated)] if _has_several_dynamic_sizes(emit, x) else None

    return lower


def _axes(op: ir.Operation) -> list[int] | None:
    """Return the axes of a reduction, counted from the front; None if they are not known."""
    dims = op.operands[1]
    kind = tensor_type_of(op.operands[0])
    if kind is None or not kind[0]:
        return None
    rank = len(kind[0])
    if producer(dims) == "torch.constant.none":
        return None if "argm" in op.name else list(range(rank))
    axes = [constant_of(item) for item in (list_of(dims) or [dims])]
    known = [axis % rank for axis in axes if axis is not None]
    return known if len(known) == len(axes) else None


def _has_several_dynamic_sizes(emit: TosaSizeOps, x: ir.Value) -> bool:
    return emit.shape(x).count(None) > 1


def _reduced(emit: TosaSizeOps, name: str, x: ir.Value, axes: Sequence[int], keepdim: bool) -> ir.Value:
    sizes = emit.sizes(x)
    for axis in axes:
        shape = list(emit.shape(x))
        shape[axis] = 1
        x = emit.op(name, [emit.tensor(shape, emit.element(x))], [x], {"axis": emit.i32(axis)}).result
    return x if keepdim else emit.reshape_to(x, [size for axis, size in enumerate(sizes) if axis not in axes])


def _position(emit: TosaSizeOps, x: ir.Value, axis: int, keepdim: bool, negated: bool) -> ir.Value:
    """Return the first position of the greatest element, or the least, in ``i64``."""
    if negated:
        zero = emit.const(emit.attribute(f"dense<0.0> : tensor<1x{emit.element(x)}>"))
        x = emit.value("tosa.negate", x.type, x, zero, zero)
    sizes = emit.sizes(x)
    shape = [size for dim, size in enumerate(emit.shape(x)) if dim != axis]
    position = emit.op("tosa.argmax", [emit.tensor(shape, "i32")], [x], {"axis": emit.i32(axis)}).result
    position = emit.value("tosa.cast", with_element(position.type, "i64"), position)
    return emit.reshape_to(position, [*sizes[:axis], 1, *sizes[axis + 1 :]]) if keepdim else position


DYNAMIC_REDUCTIONS: dict[str, Lowering] = {
    "torch.aten.sum.dim_IntList": _reduction("tosa.reduce_sum", 2),
    "torch.aten.prod.dim_int": _reduction("tosa.reduce_product", 2),
    "torch.aten.amax": _reduction("tosa.reduce_max", 2),
    "torch.aten.amin": _reduction("tosa.reduce_min", 2),
    "torch.aten.any.dim": _reduction("tosa.reduce_any", 2),
    "torch.aten.any.dims": _reduction("tosa.reduce_any", 2),
    "torch.aten.all.dim": _reduction("tosa.reduce_all", 2),
    "torch.aten.max.dim": _extremum("tosa.reduce_max", negated=False),
    "torch.aten.min.dim": _extremum("tosa.reduce_min", negated=True),
    "torch.aten.argmax": _position_of(negated=False),
    "torch.aten.argmin": _position_of(negated=True),
}
