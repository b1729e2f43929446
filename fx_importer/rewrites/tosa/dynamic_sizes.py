"""Data movement and conversions of tensors with dynamic sizes: their C++ lowerings require static ones.

Attributes stay static where that is possible: a slice takes a dynamic axis whole, or to its end (size -1); a reshape
infers one. Other sizes are computed by the shape operations of TOSA 1.1. What needs more is left alone, and the C++
lowering reports it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, is_used, producer, replace, with_element
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.emit.torch_tosa import list_of, tensor_type_of
from fx_importer.mlir.emit.tosa_sizes import NO_ELEMENTS, SIZE_ARITHMETIC, TosaSizeOps
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.tosa.dynamic_gathers import embedding_to_tosa, gather_to_tosa, index_select_to_tosa
from fx_importer.rewrites.tosa.dynamic_reductions import DYNAMIC_REDUCTIONS
from fx_importer.rewrites.tosa.dynamic_slices import pad_to_tosa, slice_to_tosa

_FLOATS = ("f16", "bf16", "f32", "f64")
_DTYPES = {"f32": np.float32, "f64": np.float64}


def _cat(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    kind, axis, operands = tensor_type_of(op.results[0]), constant_of(op.operands[1]), list_of(op.operands[0])
    if kind is None or axis is None or operands is None:
        return None
    parts = [emit.builtin(value) for value in operands]
    known = [part for part in parts if part is not None and len(emit.shape(part)) == len(kind[0])]
    if len(known) < len(parts):
        return None
    return emit.concat([_converted(emit, size, kind[1]) for size in known], axis % len(kind[0]))


def _broadcast(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Tile axes of size 1; other axes are kept."""
    kind, x, sizes = tensor_type_of(op.results[0]), emit.builtin(op.operands[0]), list_of(op.operands[1])
    if kind is None or x is None or sizes is None:
        return None
    old = [*([1] * (len(kind[0]) - len(emit.shape(x)))), *emit.sizes(x)]
    times: list[Size] = []
    for axis, (size, new) in enumerate(zip(old, kind[0], strict=True)):
        wanted = new if new is not None else emit.size_of(sizes[axis])
        if size == 1 and wanted is None:
            return None
        times.append(wanted if size == 1 and wanted is not None and wanted != -1 else 1)
    return emit.tile(emit.reshape_to(x, old) if len(old) > len(emit.shape(x)) else x, times)


def _convert(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Convert as torch: towards zero from floats to integers, and to bool whether a number is not zero."""
    kind, x = tensor_type_of(op.results[0]), emit.builtin(op.operands[0])
    return None if kind is None or x is None else _converted(emit, x, kind[1])


def _converted(emit: TosaSizeOps, x: ir.Value, target: str) -> ir.Value:
    source = emit.element(x)
    if target == "i1" and source != "i1":
        x = _widened(emit, x)
        dtype = _DTYPES[emit.element(x)] if source in _FLOATS else np.dtype(f"int{emit.element(x)[1:]}")
        zero = emit.const_array(np.zeros([1] * len(emit.shape(x)), dtype))
        bools = with_element(x.type, "i1")
        return emit.value("tosa.logical_not", bools, emit.value("tosa.equal", bools, x, zero))
    if source in _FLOATS and target not in _FLOATS:
        x = _towards_zero(emit, _widened(emit, x))
    if {source, target} == {"f16", "bf16"}:
        x = emit.cast_element(x, "f32")
    if source == "i1" and target in ("f16", "bf16"):
        x = emit.cast_element(x, "i8")
    return x if emit.element(x) == target else emit.cast_element(x, target)


def _widened(emit: TosaSizeOps, x: ir.Value) -> ir.Value:
    """Return half precision in f32, as numpy has no bf16, and narrow integers in i32, as TOSA compares."""
    wide = {"f16": "f32", "bf16": "f32", "i8": "i32", "i16": "i32"}.get(emit.element(x))
    return emit.cast_element(x, wide) if wide else x


def _towards_zero(emit: TosaSizeOps, x: ir.Value) -> ir.Value:
    zero = emit.const_array(np.zeros([1] * len(emit.shape(x)), _DTYPES[emit.element(x)]))
    negative = emit.value("tosa.greater", with_element(x.type, "i1"), zero, x)
    down, up = (emit.value(name, x.type, x) for name in ("tosa.floor", "tosa.ceil"))
    return emit.value("tosa.select", x.type, negative, up, down)


def _view(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    kind, x, listed = tensor_type_of(op.results[0]), emit.builtin(op.operands[0]), list_of(op.operands[1])
    if kind is None or x is None or listed is None:
        return None
    sizes = [new if new is not None else emit.size_of(value) for new, value in zip(kind[0], listed, strict=True)]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    if -1 in known and len([size for size in known if not isinstance(size, int)]):
        rest = emit.product_of([size for size in known if size != -1])
        inferred = emit.compute("div_floor", emit.product_of(emit.sizes(x)), rest)
        known = [inferred if size == -1 else size for size in known]
    return emit.reshape_to(x, known)


def _unsqueeze(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    x, axis = emit.builtin(op.operands[0]), constant_of(op.operands[1])
    if x is None or axis is None:
        return None
    sizes = emit.sizes(x)
    sizes.insert(axis % (len(sizes) + 1), 1)
    return emit.reshape_to(x, sizes)


def _squeeze(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Drop an axis of static size 1. Of another static size it is kept; of dynamic size, torch.export decided."""
    x, axis, kind = emit.builtin(op.operands[0]), constant_of(op.operands[1]), tensor_type_of(op.results[0])
    if x is None or axis is None or kind is None:
        return None
    sizes = emit.sizes(x)
    axis %= len(sizes)
    if len(kind[0]) < len(sizes):
        if sizes[axis] != 1:
            return None
        del sizes[axis]
    return emit.reshape_to(x, sizes)


def _collapse(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Merge the axes from the first to the last."""
    x, first, last = emit.builtin(op.operands[0]), constant_of(op.operands[1]), constant_of(op.operands[2])
    if x is None or first is None or last is None:
        return None
    sizes = emit.sizes(x)
    first, last = first % len(sizes), last % len(sizes)
    return emit.reshape_to(x, [*sizes[:first], emit.product_of(sizes[first : last + 1]), *sizes[last + 1 :]])


def _split(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Split an axis in two; the first has a known size."""
    x, axis, first = emit.builtin(op.operands[0]), constant_of(op.operands[1]), emit.size_of(op.operands[2])
    if x is None or axis is None or first is None:
        return None
    sizes = emit.sizes(x)
    rest = emit.compute("div_floor", sizes[axis], first)
    return emit.reshape_to(x, [*sizes[:axis], first, rest, *sizes[axis + 1 :]])


def _mm(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Multiply matrices of floats with several dynamic sizes as a batch of one, with sums in float32."""
    kind, a, b = tensor_type_of(op.results[0]), *(emit.builtin(operand) for operand in list(op.operands)[:2])
    if kind is None or a is None or b is None or {emit.element(a), emit.element(b)} != {kind[1]}:
        return None
    if kind[1] not in ("f16", "bf16", "f32"):
        return None
    zero = emit.const(emit.attribute(f"dense<0.0> : tensor<1x{kind[1]}>"))
    batches = [emit.reshape_to(operand, [1, *emit.sizes(operand)]) for operand in (a, b)]
    product = emit.value("tosa.matmul", emit.tensor([1, *kind[0]], "f32"), *batches, zero, zero)
    product = emit.reshape_to(product, [emit.dim(a, 0), emit.dim(b, 1)])
    return product if kind[1] == "f32" else emit.cast_element(product, kind[1])


def _arange(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Count ``start + step * i``, of integers."""
    kind = tensor_type_of(op.results[0])
    start, end, step = (emit.size_of(operand) for operand in list(op.operands)[:3])
    if kind is None or start is None or end is None or step is None or step == 0:
        return None
    backwards = isinstance(step, int) and step < 0
    distance = emit.compute("sub", start, end) if backwards else emit.compute("sub", end, start)
    counted = emit.positions(emit.compute("div_ceil", distance, abs(step) if isinstance(step, int) else step))
    if step != 1:
        factor = emit.const_array(np.array([step], np.int64)) if isinstance(step, int) else emit.number_of(step)
        counted = emit.product(counted.type, counted, factor)
    if start != 0:
        counted = emit.value("tosa.add", counted.type, counted, emit.number_of(start))
    return counted if kind[1] == "i64" else emit.cast_element(counted, kind[1])


def _number(op: ir.Operation, emit: TosaSizeOps) -> ir.Value | None:
    """Return a size as a rank-0 tensor."""
    if str(op.operands[0].type) == "!torch.float":
        op.location.emit_error(
            "a size is computed from floating-point numbers, and the shape operations of TOSA have integers only: a "
            "factor of a size must be a fraction whose products are exact, such as 1.5 or 1 / 3"
        )
        return None
    kind, size = tensor_type_of(op.results[0]), emit.size_of(op.operands[0])
    if kind is None or kind[0] or size is None or isinstance(size, int):
        return None
    number = emit.reshape_to(emit.number_of(size), [])
    return number if kind[1] == "i64" else emit.cast_element(number, kind[1])


_LOWERINGS: dict[str, Callable[[ir.Operation, TosaSizeOps], ir.Value | None]] = {
    "torch.aten.slice.Tensor": slice_to_tosa,
    "torch.aten.cat": _cat,
    "torch.aten.constant_pad_nd": pad_to_tosa,
    "torch.aten.broadcast_to": _broadcast,
    "torch.aten.to.dtype": _convert,
    "torch.aten.gather": gather_to_tosa,
    "torch.aten.index_select": index_select_to_tosa,
    "torch.aten.embedding": embedding_to_tosa,
    "torch.aten.mm": _mm,
    "torch.aten.view": _view,
    "torch.aten.unsqueeze": _unsqueeze,
    "torch.aten.squeeze.dim": _squeeze,
    "torch.prims.collapse": _collapse,
    "torch.prims.split_dim": _split,
    "torch.aten.arange.start_step": _arange,
    "torch.prim.NumToTensor.Scalar": _number,
}


@rewrite("fx-importer-dynamic-sizes-to-tosa", ops={*_LOWERINGS, *DYNAMIC_REDUCTIONS}, emitter=TosaSizeOps)
def dynamic_sizes_to_tosa(op: ir.Operation, emit: TosaSizeOps) -> None:
    """Lower data movement, conversions and reductions of tensors with dynamic sizes, and sizes as data."""
    tensors = [type_ for operand in (*op.operands, *op.results) if (type_ := tensor_type_of(operand))]
    listed = [type_ for operand in op.operands for part in list_of(operand) or () if (type_ := tensor_type_of(part))]
    if not any(None in shape for shape, _ in (*tensors, *listed)) and op.name != "torch.prim.NumToTensor.Scalar":
        return
    if any(0 in shape and None in shape for shape, _ in (*tensors, *listed)):
        op.location.emit_error(NO_ELEMENTS)
        return
    if op.name in DYNAMIC_REDUCTIONS:
        values = DYNAMIC_REDUCTIONS[op.name](op, emit)
    else:
        value = _LOWERINGS[op.name](op, emit)
        values = None if value is None else [value]
    if values is not None:
        replace(op, *(_as_torch(emit, value, result) for value, result in zip(values, op.results, strict=True)))


def _as_torch(emit: TosaSizeOps, value: ir.Value, result: ir.Value) -> ir.Value:
    """Return ``value`` as the torch tensor ``result``, whose type may know less, or more."""
    type_ = emit.tensor(*(tensor_type_of(result) or ((), "")))
    if value.type != type_ and producer(value).startswith("tosa."):
        value.set_type(type_)
    cast = value if value.type == type_ else emit.value("tensor.cast", type_, value)
    return emit.value("torch_c.from_builtin_tensor", result.type, cast)


@rewrite("fx-importer-erase-unused-sizes")
def erase_unused_sizes(module: ir.Operation) -> None:
    """Erase sizes, their arithmetic, and lists of them that nothing uses any more."""
    for op in reversed(operations(module, _SIZES)):
        if not is_used(op.results[0]):
            op.erase()


_SIZES = (*SIZE_ARITHMETIC, "torch.aten.size.int", "torch.aten.numel", "torch.prim.ListConstruct", "torch.constant.int")
