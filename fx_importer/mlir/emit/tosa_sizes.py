"""Emitting sizes that are computed from sizes, as the shape operations of TOSA 1.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, producer
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.emit.torch_tosa import TorchTosaOps

_TABLE = 1024
"""Length of the table that positions are counted by: up to its square of them."""

NO_ELEMENTS = (
    "a tensor has a static size 0 beside dynamic sizes. TOSA has no tensors without elements, from which these sizes "
    "could be read; only where all sizes are static a constant takes the tensor's place"
)


class TosaSizeOps(TorchTosaOps):
    """Emits TOSA on sizes: an int, or a ``!tosa.shape<1>`` where the size is dynamic.

    Folding is the canonicalizer's: `engines.tosa_reference.tosa_specialization` makes all of them constants.
    """

    def sizes(self, x: ir.Value) -> list[Size]:
        """Return the sizes of ``x``; dynamic ones are a ``tosa.dim`` each."""
        return [self.dim(x, axis) for axis in range(len(self.shape(x)))]

    def dim(self, x: ir.Value, axis: int) -> Size:
        """Return the size of ``x`` along ``axis``, a ``tosa.dim`` if it is dynamic."""
        static = self.shape(x)[axis]
        if static is not None:
            return static
        if 0 in self.shape(x):
            self.location.emit_error(NO_ELEMENTS)
        return self.op("tosa.dim", ["!tosa.shape<1>"], [x], {"axis": self.i32(axis)}).result

    def size_of(self, value: ir.Value) -> Size | None:
        """Return a ``!torch.int`` as a size; None if it is not computed from sizes of tensors."""
        static = constant_of(value)
        if static is not None:
            return static
        name = producer(value)
        if name == "torch.aten.size.int":
            x, axis = self.builtin(value.owner.operands[0]), constant_of(value.owner.operands[1])
            return None if x is None or axis is None else self.dim(x, axis % len(self.shape(x)))
        if name == "torch.aten.numel":
            x = self.builtin(value.owner.operands[0])
            return None if x is None else self.product_of(self.sizes(x))
        if name not in SIZE_ARITHMETIC:
            return None
        operands = [self.size_of(operand) for operand in value.owner.operands]
        known = [operand for operand in operands if operand is not None]
        return self.compute(SIZE_ARITHMETIC[name], *known) if len(known) == len(operands) else None

    def compute(self, name: str, *operands: Size) -> Size:
        """Emit a shape operation: ``add``, ``sub``, ``mul``, ``div_floor``, ``div_ceil``, ``min``, ``max``."""
        if all(isinstance(operand, int) for operand in operands):
            return reduce(_FOLDS[name], [operand for operand in operands if isinstance(operand, int)])
        return self.value(f"tosa.{name}_shape", "!tosa.shape<1>", *(self.shape_of([operand]) for operand in operands))

    def product_of(self, sizes: Sequence[Size]) -> Size:
        """Return the product of ``sizes``."""
        return reduce(lambda a, b: b if _is_one(a) else a if _is_one(b) else self.compute("mul", a, b), sizes, 1)

    def shape_of(self, sizes: Sequence[Size]) -> ir.Value:
        """Return ``sizes`` as one ``!tosa.shape``."""
        parts: list[list[int] | ir.Value] = []
        for size in sizes:
            if not isinstance(size, int):
                parts.append(size)
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(size)
            else:
                parts.append([size])
        values = [self.const_shape(part) if isinstance(part, list) else part for part in parts]
        if len(values) <= 1:
            return values[0] if values else self.const_shape([])
        return self.value("tosa.concat_shape", f"!tosa.shape<{len(sizes)}>", *values)

    # --- tensors ----------------------------------------------------------------------------------------------------

    def reshape_to(self, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
        """Emit a ``tosa.reshape``, which infers a single dynamic size."""
        if [size if isinstance(size, int) else None for size in sizes].count(None) == 1:
            sizes = [size if isinstance(size, int) else -1 for size in sizes]
        shape = [size if isinstance(size, int) and size >= 0 else None for size in sizes]
        return self.value("tosa.reshape", self.tensor(shape, self.element(x)), x, self.shape_of(sizes))

    def tile(self, x: ir.Value, times: Sequence[Size]) -> ir.Value:
        """Emit a ``tosa.tile``."""
        if all(_is_one(count) for count in times):
            return x
        pairs = zip(self.shape(x), times, strict=True)
        shape = [a * b if isinstance(a, int) and isinstance(b, int) else None for a, b in pairs]
        return self.value("tosa.tile", self.tensor(shape, self.element(x)), x, self.shape_of(times))

    def pad_with_zeros(self, x: ir.Value, widths: Sequence[Size]) -> ir.Value:
        """Emit a ``tosa.pad`` with ``widths`` before and after each axis."""
        zero = self.attribute(f"dense<{_ZEROS.get(self.element(x), 0)}> : tensor<1x{self.element(x)}>")
        pairs = zip(self.shape(x), widths[::2], widths[1::2], strict=True)
        shape = [size if before == after == 0 else None for size, before, after in pairs]
        type_ = self.tensor(shape, self.element(x))
        return self.value("tosa.pad", type_, x, self.shape_of(widths), self.const(zero))

    def range_of(self, x: ir.Value, axis: int, start: Size, size: Size) -> ir.Value:
        """Emit a ``tosa.slice`` of ``size`` elements from ``start`` along ``axis``; other axes are taken whole."""
        if isinstance(start, int) and isinstance(size, int):
            return self.part(x, axis, start, size)
        shape = list(self.shape(x))
        shape[axis] = size if isinstance(size, int) else None
        starts = self.shape_of([start if dim == axis else 0 for dim in range(len(shape))])
        sizes = self.shape_of(
            [size if dim == axis else -1 if length is None else length for dim, length in enumerate(shape)]
        )
        return self.value("tosa.slice", self.tensor(shape, self.element(x)), x, starts, sizes)

    def crop_to_windows(self, x: ir.Value, axis: int, length: Size, step: int) -> ir.Value:
        """Slice the end of an axis off that no window of ``length`` reaches, ``step`` apart."""
        last = self.compute("div_floor", self.compute("sub", self.dim(x, axis), length), step)
        return self.range_of(x, axis, 0, self.compute("add", self.compute("mul", last, step), length))

    def positions(self, number: Size) -> ir.Value:
        """Return the integers from 0 to ``number``, in ``i64``: rows of a table, or a part of one."""
        if isinstance(number, int):
            return self.const_array(np.arange(number, dtype=np.int64))
        table = self.const_array(np.arange(_TABLE, dtype=np.int64))
        rows = self.range_of(table, 0, 0, self.compute("div_ceil", number, _TABLE))
        width = self.const_array(np.full([1, 1], _TABLE, np.int64))
        firsts = self.product(self.tensor([None, 1], "i64"), self.reshape_to(rows, [-1, 1]), width)
        columns = self.const_array(np.arange(_TABLE, dtype=np.int64)[None])
        counted = self.value("tosa.add", self.tensor([None, _TABLE], "i64"), firsts, columns)
        return self.range_of(self.reshape_to(counted, [-1]), 0, 0, number)

    def number_of(self, size: Size) -> ir.Value:
        """Return ``size``, which is not negative, as the element of an ``i64`` tensor of shape ``[1]``."""
        if isinstance(size, int):
            return self.const_array(np.array([size], np.int64))
        one = self.const_array(np.array([1], np.int64))
        ones = self.tile(one, [self.compute("add", size, 1)])  # TOSA has no tensor without elements
        total = self.op("tosa.reduce_sum", [self.tensor([1], "i64")], [ones], {"axis": self.i32(0)}).result
        return self.value("tosa.sub", total.type, total, one)


def _is_one(size: Size) -> bool:
    return isinstance(size, int) and size == 1


_ZEROS = {**dict.fromkeys(("f16", "bf16", "f32", "f64"), "0.0"), "i1": "false"}
SIZE_ARITHMETIC = {
    "torch.aten.add.int": "add",
    "torch.aten.sub.int": "sub",
    "torch.aten.mul.int": "mul",
    "torch.aten.floordiv.int": "div_floor",
    "torch.prim.min.int": "min",
    "torch.prim.max.int": "max",
}
_FOLDS: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__,
    "sub": int.__sub__,
    "mul": int.__mul__,
    "div_floor": int.__floordiv__,
    "div_ceil": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
}
