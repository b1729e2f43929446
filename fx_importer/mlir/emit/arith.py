"""Emitting arithmetic on sizes and scalars: arith, and the sizes of tensors."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, Size

CMPF = {
    "oeq": 1,
    "ogt": 2,
    "oge": 3,
    "olt": 4,
    "ole": 5,
    "ord": 7,
    "ugt": 9,
    "ult": 11,
    "une": 13,
    "uno": 14,
}
"""The predicates of ``arith.cmpf`` that are used here, by name."""
CMPI = {"eq": 0, "ne": 1, "slt": 2, "sle": 3, "sgt": 4, "sge": 5, "ult": 6, "ugt": 8, "uge": 9}
"""The predicates of ``arith.cmpi`` that are used here, by name."""


class ArithOps(Emitter):
    """Emits arith on scalars. An `int` is taken wherever an ``index`` is."""

    def index(self, value: Size) -> ir.Value:
        """Return ``value`` as an ``index``."""
        if isinstance(value, ir.Value):
            return value
        return self.constant_integer(value, ir.IndexType.get(self.context))

    def constant_integer(self, value: int, type_: ir.Type) -> ir.Value:
        """Emit ``arith.constant`` of an integer type, or of ``index``."""
        return self.op("arith.constant", [type_], (), {"value": ir.IntegerAttr.get(type_, value)}).result

    def constant_scalar(self, value: float, type_: ir.Type) -> ir.Value:
        """Emit ``arith.constant`` of a type of integers or floats."""
        if isinstance(type_, ir.IntegerType | ir.IndexType):
            return self.constant_integer(int(value), type_)
        number = ir.FloatAttr.get(type_, value, loc=self.location)
        return self.op("arith.constant", [type_], (), {"value": number}).result

    def index_op(self, name: str, left: Size, right: Size) -> ir.Value:
        """Emit ``arith.<name>`` on two ``index``."""
        return self.value(f"arith.{name}", "index", self.index(left), self.index(right))

    def index_less(self, left: Size, right: Size) -> ir.Value:
        """Emit whether one ``index`` is less than another, both signed."""
        return self.compare_integers("slt", self.index(left), self.index(right))

    def compare_integers(self, predicate: str, left: ir.Value, right: ir.Value) -> ir.Value:
        """Emit ``arith.cmpi``; ``predicate`` is one of `CMPI`."""
        return self.op("arith.cmpi", ["i1"], [left, right], {"predicate": self.i64(CMPI[predicate])}).result

    def compare_floats(self, predicate: str, left: ir.Value, right: ir.Value) -> ir.Value:
        """Emit ``arith.cmpf``; ``predicate`` is one of `CMPF`."""
        return self.op("arith.cmpf", ["i1"], [left, right], {"predicate": self.i64(CMPF[predicate])}).result

    def select_value(self, condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
        """Emit ``arith.select``."""
        return self.value("arith.select", yes.type, condition, yes, no)

    def size(self, tensor: ir.Value, axis: int) -> Size:
        """Return the size of a tensor or memref along ``axis``; emit a ``dim`` if it is dynamic."""
        kind = ir.ShapedType(tensor.type)
        if not kind.is_dynamic_dim(axis):
            return kind.get_dim_size(axis)
        dialect = "memref" if isinstance(tensor.type, ir.MemRefType) else "tensor"
        return self.value(f"{dialect}.dim", "index", tensor, self.index(axis))

    def sizes(self, tensor: ir.Value) -> list[Size]:
        """Return the size of each axis of ``tensor``, as `size` does."""
        return [self.size(tensor, axis) for axis in range(ir.RankedTensorType(tensor.type).rank)]
