"""What rules for single operators say in StableHLO, of sizes that may be known at run time only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import constant_of, producer
from fx_importer.rewrites.torch.region_types import UnsignedCarrier

Size: TypeAlias = "int | ir.Value"
"""A number, or a value of type ``index``."""


class TensorEmitter(UnsignedCarrier):
    """Emits StableHLO on builtin tensors. Sizes are in ``tensor`` and ``arith``: `numbers_to_stablehlo` reads that."""

    # --- what operators take ----------------------------------------------------------------------------------------

    @staticmethod
    def integers(value: ir.Value) -> list[int] | None:
        """Return the numbers of a ``!torch.list<int>``, if they are known."""
        if producer(value) != "torch.prim.ListConstruct":
            return None
        found = [constant_of(each) for each in value.owner.operands]
        return None if None in found else [each for each in found if each is not None]

    def axis(self, x: ir.Value, dim: ir.Value) -> int | None:
        """Return which axis of the torch tensor ``x`` ``dim`` is; None, if that is not known, or there is none."""
        rank, known = ir.RankedTensorType(self.carrier_type(x.type)).rank, constant_of(dim)
        return known % rank if rank and known is not None else None

    def number(self, value: ir.Value) -> Size:
        """Return a ``!torch.int``."""
        known = constant_of(value)
        if known is not None:
            return known
        return self.value("arith.index_cast", "index", self.value("torch_c.to_i64", "i64", value))

    # --- sizes ------------------------------------------------------------------------------------------------------

    def size(self, x: ir.Value, axis: int) -> Size:
        """Return the size of ``x`` along ``axis``."""
        kind = ir.RankedTensorType(x.type)
        if not kind.is_dynamic_dim(axis):
            return kind.get_dim_size(axis)
        return self.value("tensor.dim", "index", x, self.index(axis))

    def sizes(self, x: ir.Value) -> list[Size]:
        """Return the sizes of ``x``."""
        return [self.size(x, axis) for axis in range(ir.RankedTensorType(x.type).rank)]

    def index(self, size: Size) -> ir.Value:
        """Emit a size as an ``index``."""
        if isinstance(size, ir.Value):
            return size
        number = ir.IntegerAttr.get(ir.IndexType.get(self.context), size)
        return self.op("arith.constant", ["index"], (), {"value": number}).result

    def calculated(self, name: str, a: Size, b: Size) -> ir.Value:
        """Emit ``arith``'s ``name`` of two sizes."""
        return self.value(f"arith.{name}", "index", self.index(a), self.index(b))

    def plus(self, a: Size, b: Size) -> Size:
        return a + b if isinstance(a, int) and isinstance(b, int) else self.calculated("addi", a, b)

    def vector(self, sizes: Sequence[Size]) -> ir.Value:
        """Emit sizes as a tensor."""
        return self.value("tensor.from_elements", f"tensor<{len(sizes)}xindex>", *map(self.index, sizes))

    def scalar(self, size: Size) -> ir.Value:
        """Emit a size as a ``tensor<i64>``."""
        return self.value(
            "tensor.from_elements", "tensor<i64>", self.value("arith.index_cast", "i64", self.index(size))
        )

    # --- tensors ----------------------------------------------------------------------------------------------------

    @staticmethod
    def element(x: ir.Value | ir.Type) -> str:
        """Return the element type of a tensor, as text."""
        return str(ir.RankedTensorType(x.type if isinstance(x, ir.Value) else x).element_type)

    def tensor(self, sizes: Sequence[Size | None], element: str) -> ir.Type:
        """Return the type of tensors of ``sizes``."""
        return self.type(f"tensor<{''.join(f'{each}x' if isinstance(each, int) else '?x' for each in sizes)}{element}>")

    def constant(self, text: str, kind: ir.Type | str) -> ir.Value:
        """Emit a constant tensor; ``text`` is what its elements are."""
        dense = ir.Attribute.parse(f"dense<{text}> : {kind}", self.context)
        return self.op("stablehlo.constant", [kind], (), {"value": dense}).result

    def filled(self, scalar: ir.Value, sizes: Sequence[Size]) -> ir.Value:
        """Emit a tensor that is ``scalar`` everywhere."""
        return self.spread(scalar, [], sizes)

    def spread(self, x: ir.Value, axes: Sequence[int], sizes: Sequence[Size]) -> ir.Value:
        """Emit ``x``, whose axes are ``axes`` of the result, along all others too."""
        kind, dims = self.tensor(sizes, self.element(x)), {"broadcast_dimensions": self.array(axes)}
        return self.op("stablehlo.dynamic_broadcast_in_dim", [kind], [x, self.vector(sizes)], dims).result

    def iota(self, axis: int, sizes: Sequence[Size]) -> ir.Value:
        """Emit 0, 1, 2, … along ``axis``, of 64 bits."""
        along = {"iota_dimension": self.i64(axis)}
        return self.op("stablehlo.dynamic_iota", [self.tensor(sizes, "i64")], [self.vector(sizes)], along).result

    def converted(self, x: ir.Value, element: str) -> ir.Value:
        """Emit ``x`` in another element type, if it is another."""
        if self.element(x) == element:
            return x
        kind = ir.RankedTensorType(x.type)
        known = [None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank)]
        return self.value("stablehlo.convert", self.tensor(known, element), x)

    def first(self, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
        """Emit the first elements of ``x`` along each axis: as many as ``sizes``."""
        kind = self.tensor(sizes, self.element(x))
        starts, strides = self.vector([0] * len(sizes)), self.vector([1] * len(sizes))
        return self.value("stablehlo.real_dynamic_slice", kind, x, starts, self.vector(sizes), strides)

    # --- attributes, regions ----------------------------------------------------------------------------------------

    def i64(self, value: int) -> ir.Attribute:
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, self.context), value)

    def array(self, values: Sequence[int]) -> ir.Attribute:
        return ir.DenseI64ArrayAttr.get(list(values), self.context)

    def compare(self, direction: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """Emit a comparison of tensors of one type."""
        element = self.element(a)
        order = (
            "UNSIGNED"
            if element.startswith(("i1", "ui")) and element != "i16"
            else "SIGNED"
            if element[0] == "i"
            else "FLOAT"
        )
        attributes = {
            "comparison_direction": ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>", self.context),
            "compare_type": ir.Attribute.parse(f"#stablehlo<comparison_type {order}>", self.context),
        }
        kind = ir.RankedTensorType(a.type)
        sizes = [None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis) for axis in range(kind.rank)]
        return self.op("stablehlo.compare", [self.tensor(sizes, "i1")], [a, b], attributes).result

    def block(self, region: ir.Region, kinds: Sequence[ir.Type], body: Callable[..., Sequence[ir.Value]]) -> None:
        """Fill ``region``: ``body`` takes an emitter and arguments of types ``kinds``, and gives what is returned."""
        made = region.blocks.append(*kinds, arg_locs=[self._location] * len(kinds))
        inside = TensorEmitter(ir.InsertionPoint(made), self._location)
        inside.op("stablehlo.return", [], body(inside, *made.arguments))
