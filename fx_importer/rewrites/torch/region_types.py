"""Type conversion at the regions of another dialect's control flow, and the counters of its loops."""

from __future__ import annotations

from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import producer
from fx_importer.mlir.emit.torch import TorchOps, constant_of
from fx_importer.mlir.types import TorchTensor

_BOOLEAN = str(TorchTensor((), "i1"))


class UnsupportedRegionType(Exception):
    """A value has a type that has no builtin type; the message is a clause that says so."""


class TypeConverter(TorchOps):
    """Converts torch tensors to builtin tensors and back, and torch scalars to builtin tensors of rank 0."""

    unsigned = False
    """Whether builtin tensors can have unsigned element types."""
    narrow_count = "si64"
    """The element type of the counter of a loop whose trip count is known to fit into 32 bits."""

    def builtin_type(self, torch_type: ir.Type) -> ir.Type:
        """Return the builtin type of values of ``torch_type``. Raises `UnsupportedRegionType` if there is none."""
        scalar = _SCALARS.get(str(torch_type))
        tensor = TorchTensor((), scalar.element) if scalar else TorchTensor.read(torch_type)
        if tensor is None or tensor.mutable or tensor.encoding:
            raise UnsupportedRegionType(f"a value of type {torch_type} cannot go in or out of its regions")
        keeps_sign = tensor.is_unsigned and self.unsigned
        return self.tensor(tensor.shape, tensor.element if keeps_sign else tensor.signless_element)

    def to_builtin(self, value: ir.Value) -> ir.Value:
        """Emit ``value``, which is torch's, as a value of its builtin type."""
        target = self.builtin_type(value.type)
        return self.value("torch_c.to_builtin_tensor", target, self._as_tensor(value))

    def from_builtin(self, value: ir.Value, torch_type: ir.Type | str) -> ir.Value:
        """Emit ``value``, which is of the builtin type of ``torch_type``, as a value of ``torch_type``."""
        scalar = _SCALARS.get(str(torch_type))
        if scalar is None:
            return self.value("torch_c.from_builtin_tensor", torch_type, value)
        tensor = self.value("torch_c.from_builtin_tensor", str(TorchTensor((), scalar.element)), value)
        return self.value(scalar.read, torch_type, tensor)

    def _as_tensor(self, value: ir.Value) -> ir.Value:
        """Return a scalar as a tensor of rank 0: the one that it was read from, if it was."""
        kind = str(value.type)
        if kind not in _SCALARS:
            return value
        scalar = _SCALARS[kind]
        if producer(value) == scalar.read:
            tensor = self._rank_zero(value.owner.operands[0])
            if str(tensor.type) == str(TorchTensor((), scalar.element)):
                return tensor
            if kind == "!torch.bool":
                return self.value("torch.aten.ne.Scalar", _BOOLEAN, tensor, self.integer(0))
        if kind == "!torch.bool":
            constant = constant_of(value)
            if constant is not None:
                return self.rank_zero(constant, "i1")
            number = self._as_tensor(self.value("torch.aten.Int.bool", "!torch.int", value))
            return self.value("torch.aten.ne.Scalar", _BOOLEAN, number, self.integer(0))
        return self.value("torch.prim.NumToTensor.Scalar", str(TorchTensor((), scalar.element)), value)

    def _rank_zero(self, tensor: ir.Value) -> ir.Value:
        """Return ``tensor``, which has one element, as a tensor of rank 0."""
        kind = TorchTensor.read(tensor.type)
        if kind is None or not kind.shape:
            return tensor
        shape = self.value("torch.prim.ListConstruct", "!torch.list<int>")
        return self.value("torch.aten.view", str(kind.with_shape(())), tensor, shape)

    # --- loop counters ----------------------------------------------------------------------------------------------

    def zero(self, bound: int | None) -> ir.Value:
        """Emit the initial counter of a loop; ``bound`` is its trip count limit, if that is constant."""
        return self.rank_zero(0, self.narrow_count if bound is not None and bound < 2**31 else "si64")

    def next_count(self, count: ir.Value) -> ir.Value:
        """Emit ``count + 1``."""
        one = self.integer(1)
        return self.value("torch.aten.add.Scalar", count.type, count, one, one)

    def count_as_int(self, count: ir.Value) -> ir.Value:
        """Emit ``count`` as a ``!torch.int``."""
        return self.value("torch.aten.Int.Tensor", "!torch.int", count)

    def below(self, count: ir.Value, bound: ir.Value) -> ir.Value:
        """Emit whether ``count`` is below the ``!torch.int`` ``bound``, as a ``!torch.bool``."""
        known = constant_of(bound)
        dtype = TorchTensor.of(count).element
        limit = self._as_tensor(bound) if known is None else self.rank_zero(known, dtype)
        return self.as_bool(self.value("torch.aten.lt.Tensor", _BOOLEAN, count, limit))

    def both(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Emit the conjunction of two ``!torch.bool``."""
        return self.as_bool(self.value("torch.aten.logical_and", _BOOLEAN, self._as_tensor(a), self._as_tensor(b)))

    def as_bool(self, tensor: ir.Value) -> ir.Value:
        """Emit ``tensor``, of rank 0, as a ``!torch.bool``."""
        return self.value("torch.aten.Bool.Tensor", "!torch.bool", tensor)


class UnsignedTypeConverter(TypeConverter):
    """Converts to tensors that can have unsigned element types."""

    unsigned = True


class NarrowCountConverter(TypeConverter):
    """Counts iterations in 32 bits where they fit."""

    narrow_count = "si32"


class ScalarConverter(TypeConverter):
    """Converts torch scalars to i1, i64 and f64."""

    def builtin_type(self, torch_type: ir.Type) -> ir.Type:
        scalar = _SCALARS.get(str(torch_type))
        return self.type(scalar.builtin) if scalar else super().builtin_type(torch_type)

    def to_builtin(self, value: ir.Value) -> ir.Value:
        scalar = _SCALARS.get(str(value.type))
        if scalar is None:
            return super().to_builtin(value)
        return self.value(f"torch_c.to_{scalar.builtin}", scalar.builtin, value)

    def from_builtin(self, value: ir.Value, torch_type: ir.Type | str) -> ir.Value:
        scalar = _SCALARS.get(str(torch_type))
        if scalar is None:
            return super().from_builtin(value, torch_type)
        return self.value(f"torch_c.from_{scalar.builtin}", torch_type, value)

    def zero(self, bound: int | None) -> ir.Value:
        return self.integer(0)

    def next_count(self, count: ir.Value) -> ir.Value:
        return self.value("torch.aten.add.int", "!torch.int", count, self.integer(1))

    def count_as_int(self, count: ir.Value) -> ir.Value:
        return count

    def below(self, count: ir.Value, bound: ir.Value) -> ir.Value:
        return self.value("torch.aten.lt.int", "!torch.bool", count, bound)

    def both(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.value("torch.aten.__and__.bool", "!torch.bool", a, b)


@dataclass(frozen=True)
class _Scalar:
    """How a type of torch's scalars converts."""

    builtin: str
    """The builtin scalar type."""
    element: str
    """The element type of the torch tensor of rank 0 that holds one."""
    read: str
    """The operation that reads one from such a tensor."""


_SCALARS = {
    "!torch.int": _Scalar("i64", "si64", "torch.aten.Int.Tensor"),
    "!torch.float": _Scalar("f64", "f64", "torch.aten.Float.Tensor"),
    "!torch.bool": _Scalar("i1", "i1", "torch.aten.Bool.Tensor"),
}
