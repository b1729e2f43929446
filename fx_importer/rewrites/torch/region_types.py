"""How torch's tensors and numbers travel through the regions of another dialect, and what counts turns there."""

from __future__ import annotations

import re

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Emitter, constant_of, producer

_TENSOR = re.compile(r"!torch\.vtensor<\[(?P<shape>[\d,?]*)\],(?P<dtype>[^,]*)>")
_BOOLEAN = "!torch.vtensor<[],i1>"


class Uncarried(Exception):
    """A value of a type that cannot travel; the message is a clause that says so."""


class Carrier(Emitter):
    """Tensors travel as builtin tensors; so do numbers, which are tensors of rank 0."""

    unsigned = False
    """Whether tensors can have unsigned element types."""
    narrow_count = "si64"
    """What counts the turns of a loop whose bound is known to fit into 32 bits."""

    def carrier_type(self, torch_type: ir.Type) -> ir.Type:
        """Return what carries values of ``torch_type``; raises `Uncarried`."""
        text = str(torch_type)
        if text in _NUMBERS:
            text = f"!torch.vtensor<[],{_NUMBERS[text][0]}>"
        found = _TENSOR.fullmatch(text)
        if found is None:
            raise Uncarried(f"a value of type {torch_type} cannot go in or out of its regions")
        dtype = found["dtype"]
        if dtype.startswith("si") or (dtype.startswith("ui") and not self.unsigned):
            dtype = dtype[1:]
        dims = "".join(f"{size}x" for size in found["shape"].split(",") if size)
        return self.type(f"tensor<{dims}{dtype}>")

    def send(self, value: ir.Value) -> ir.Value:
        """Return the carrier of ``value``."""
        target = self.carrier_type(value.type)
        return self.value("torch_c.to_builtin_tensor", target, self._as_tensor(value))

    def receive(self, carrier: ir.Value, torch_type: ir.Type | str) -> ir.Value:
        """Return what ``carrier`` carries."""
        number = _NUMBERS.get(str(torch_type))
        if number is None:
            return self.value("torch_c.from_builtin_tensor", torch_type, carrier)
        dtype, read = number
        tensor = self.value("torch_c.from_builtin_tensor", f"!torch.vtensor<[],{dtype}>", carrier)
        return self.value(f"torch.aten.{read}.Tensor", torch_type, tensor)

    def _as_tensor(self, value: ir.Value) -> ir.Value:
        """Return a number as a tensor of rank 0: the one that it was read from, if it was."""
        kind = str(value.type)
        if kind not in _NUMBERS:
            return value
        dtype, read = _NUMBERS[kind]
        if producer(value) == f"torch.aten.{read}.Tensor":
            tensor = self._rank_zero(value.owner.operands[0])
            if str(tensor.type) == f"!torch.vtensor<[],{dtype}>":
                return tensor
            if kind == "!torch.bool":
                return self.value("torch.aten.ne.Scalar", _BOOLEAN, tensor, self.integer(0))
        if kind == "!torch.bool":
            constant = constant_of(value)
            if constant is not None:
                return self.rank_zero(constant, "i1")
            number = self._as_tensor(self.value("torch.aten.Int.bool", "!torch.int", value))
            return self.value("torch.aten.ne.Scalar", _BOOLEAN, number, self.integer(0))
        return self.value("torch.prim.NumToTensor.Scalar", f"!torch.vtensor<[],{dtype}>", value)

    def _rank_zero(self, tensor: ir.Value) -> ir.Value:
        """Return a tensor of one element as one of rank 0."""
        found = _TENSOR.fullmatch(str(tensor.type))
        if found is None or not found["shape"]:
            return tensor
        shape = self.value("torch.prim.ListConstruct", "!torch.list<int>")
        return self.value("torch.aten.view", f"!torch.vtensor<[],{found['dtype']}>", tensor, shape)

    # --- counting turns ---------------------------------------------------------------------------------------------

    def zero(self, bound: int | None) -> ir.Value:
        """Emit the first count of a loop of at most ``bound`` turns, if that is known."""
        return self.rank_zero(0, self.narrow_count if bound is not None and bound < 2**31 else "si64")

    def next_count(self, count: ir.Value) -> ir.Value:
        one = self.integer(1)
        return self.value("torch.aten.add.Scalar", count.type, count, one, one)

    def count_as_int(self, count: ir.Value) -> ir.Value:
        return self.value("torch.aten.Int.Tensor", "!torch.int", count)

    def below(self, count: ir.Value, bound: ir.Value) -> ir.Value:
        """Return whether ``count`` is below the ``!torch.int`` ``bound``."""
        known = constant_of(bound)
        dtype = str(count.type).partition(",")[2].rstrip(">")
        limit = self._as_tensor(bound) if known is None else self.rank_zero(known, dtype)
        return self.as_bool(self.value("torch.aten.lt.Tensor", _BOOLEAN, count, limit))

    def both(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.as_bool(self.value("torch.aten.logical_and", _BOOLEAN, self._as_tensor(a), self._as_tensor(b)))

    def as_bool(self, tensor: ir.Value) -> ir.Value:
        return self.value("torch.aten.Bool.Tensor", "!torch.bool", tensor)


class UnsignedCarrier(Carrier):
    """Where tensors can have unsigned element types."""

    unsigned = True


class NarrowCarrier(Carrier):
    """Where integers of 64 bits are best avoided."""

    narrow_count = "si32"


class ScalarCarrier(Carrier):
    """Numbers travel as i1, i64 and f64."""

    def carrier_type(self, torch_type: ir.Type) -> ir.Type:
        scalar = _SCALARS.get(str(torch_type))
        return self.type(scalar) if scalar else super().carrier_type(torch_type)

    def send(self, value: ir.Value) -> ir.Value:
        scalar = _SCALARS.get(str(value.type))
        return self.value(f"torch_c.to_{scalar}", scalar, value) if scalar else super().send(value)

    def receive(self, carrier: ir.Value, torch_type: ir.Type | str) -> ir.Value:
        scalar = _SCALARS.get(str(torch_type))
        if scalar is None:
            return super().receive(carrier, torch_type)
        return self.value(f"torch_c.from_{scalar}", torch_type, carrier)

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


_NUMBERS = {"!torch.int": ("si64", "Int"), "!torch.float": ("f64", "Float"), "!torch.bool": ("i1", "Bool")}
"""A number's type → the element type of the tensor that carries it, and the name in the op that reads it back."""
_SCALARS = {"!torch.int": "i64", "!torch.float": "f64", "!torch.bool": "i1"}
