"""Emitting TOSA for operations of the torch dialect."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Shape, producer, with_element
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.mlir.emit.tosa import TosaOps
from fx_importer.mlir.types import TorchTensor


def tensor_type_of(value: ir.Value) -> tuple[Shape, str] | None:
    """Return the sizes and the builtin element type of a torch tensor, None if unknown, unsigned or complex."""
    tensor = TorchTensor.read(value.type)
    if tensor is None or tensor.mutable or tensor.encoding or tensor.is_unsigned or "<" in tensor.element:
        return None
    return tensor.shape, tensor.signless_element


def list_of(value: ir.Value) -> list[ir.Value] | None:
    """Return the elements of a list of values; None if something else made it."""
    return list(value.owner.operands) if producer(value) == "torch.prim.ListConstruct" else None


def constants_in(value: ir.Value) -> list[int] | None:
    """Return the elements of a list of constants; None if one of them is not constant."""
    constants = [constant_of(item) for item in list_of(value) or ()]
    known = [constant for constant in constants if constant is not None]
    return known if list_of(value) is not None and len(known) == len(constants) else None


class TorchTosaOps(TosaOps):
    """Emits TOSA on the tensors of torch operations. A size of None is dynamic."""

    def builtin(self, value: ir.Value) -> ir.Value | None:
        """Return a torch tensor as a builtin one; None if its type is not known."""
        type_ = tensor_type_of(value)
        return type_ and self.value("torch_c.to_builtin_tensor", self.tensor(*type_), value)

    def reshape(self, x: ir.Value, shape: Sequence[int | None]) -> ir.Value | None:
        """Emit a ``tosa.reshape``; None for two dynamic sizes: it can infer only one."""
        if tuple(shape) == self.shape(x):
            return x
        if list(shape).count(None) > 1:
            return None
        sizes = self.const_shape([-1 if size is None else size for size in shape])
        return self.value("tosa.reshape", self.tensor(shape, self.element(x)), x, sizes)

    def transpose(self, x: ir.Value, order: Sequence[int]) -> ir.Value:
        """Emit a ``tosa.transpose`` with the axes in ``order``."""
        if list(order) == list(range(len(order))):
            return x
        shape = self.shape(x)
        type_ = self.tensor([shape[axis] for axis in order], self.element(x))
        return self.op(
            "tosa.transpose", [type_], [x], {"perms": self.attribute(f"array<i32: {', '.join(map(str, order))}>")}
        ).result

    def part(self, x: ir.Value, axis: int, start: int, size: int | None) -> ir.Value:
        """Emit a ``tosa.slice`` from ``start`` along ``axis``: of a static size, or to the end."""
        shape = list(self.shape(x))
        if start == 0 and size == shape[axis]:
            return x
        shape[axis] = size
        starts = self.const_shape([start if dim == axis else 0 for dim in range(len(shape))])
        sizes = self.const_shape([-1 if length is None else length for length in shape])
        return self.value("tosa.slice", self.tensor(shape, self.element(x)), x, starts, sizes)

    def reverse(self, x: ir.Value, axis: int) -> ir.Value:
        """Emit a ``tosa.reverse``."""
        return self.op("tosa.reverse", [x.type], [x], {"axis": self.i32(axis)}).result

    def concat(self, parts: Sequence[ir.Value], axis: int) -> ir.Value:
        """Emit a ``tosa.concat``."""
        shapes = [self.shape(part) for part in parts]
        shape = list(shapes[0])
        for other in shapes[1:]:
            shape = [b if a is None else a for a, b in zip(shape, other, strict=True)]
        along = [shape[axis] for shape in shapes]
        shape[axis] = None if None in along else sum(size or 0 for size in along)
        type_ = self.tensor(shape, self.element(parts[0]))
        return self.op("tosa.concat", [type_], parts, {"axis": self.i32(axis)}).result

    def gather(self, values: ir.Value, indices: ir.Value) -> ir.Value:
        """Emit a ``tosa.gather`` of ``[N, K, C]`` at ``[N, W]``, integers of any width."""
        (batch, _, channels), (_, number) = self.shape(values), self.shape(indices)
        if self.element(indices) != "i32":
            indices = self.value("tosa.cast", with_element(indices.type, "i32"), indices)
        type_ = self.tensor([batch, number, channels], self.element(values))
        return self.value("tosa.gather", type_, values, indices)

    def i32(self, value: int) -> ir.Attribute:
        """Return an attribute of type ``i32``."""
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(32, self.context), value)
