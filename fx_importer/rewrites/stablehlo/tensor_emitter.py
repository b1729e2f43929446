"""Emit StableHLO for dynamically shaped tensors: the building blocks of `operators`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import Size, producer, with_element
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.rewrites.torch.region_types import UnsignedTypeConverter


class TensorEmitter(StablehloOps):
    """Emits StableHLO on builtin tensors. Sizes use tensor and arith, which `scalars_to_stablehlo` lowers."""

    @cached_property
    def torch(self) -> UnsignedTypeConverter:
        """Converts between torch tensors and builtin ones at the same point."""
        return self.using(UnsignedTypeConverter)

    @cached_property
    def arith(self) -> ArithOps:
        """Emits sizes at the same point."""
        return self.using(ArithOps)

    # --- operands of torch operators --------------------------------------------------------------------------------

    @staticmethod
    def integers(value: ir.Value) -> list[int] | None:
        """Return the elements of a ``!torch.list<int>`` of constants; None for any other list."""
        if producer(value) != "torch.prim.ListConstruct":
            return None
        constants = [constant_of(operand) for operand in value.owner.operands]
        return None if None in constants else [constant for constant in constants if constant is not None]

    def axis(self, x: ir.Value, dim: ir.Value) -> int | None:
        """Return the axis ``dim`` of the torch tensor ``x``; None if it is not constant or ``x`` has rank 0."""
        rank, known = ir.RankedTensorType(self.torch.builtin_type(x.type)).rank, constant_of(dim)
        return known % rank if rank and known is not None else None

    def number(self, value: ir.Value) -> Size:
        """Return a ``!torch.int`` as a size."""
        known = constant_of(value)
        if known is not None:
            return known
        return self.value("arith.index_cast", "index", self.value("torch_c.to_i64", "i64", value))

    # --- sizes ------------------------------------------------------------------------------------------------------

    def plus(self, a: Size, b: Size) -> Size:
        """Return ``a + b``."""
        return a + b if isinstance(a, int) and isinstance(b, int) else self.arith.index_op("addi", a, b)

    def vector(self, sizes: Sequence[Size]) -> ir.Value:
        """Emit sizes as a 1-D tensor of index."""
        return self.value("tensor.from_elements", f"tensor<{len(sizes)}xindex>", *map(self.arith.index, sizes))

    def scalar(self, size: Size) -> ir.Value:
        """Emit a size as a ``tensor<i64>``."""
        return self.value(
            "tensor.from_elements", "tensor<i64>", self.value("arith.index_cast", "i64", self.arith.index(size))
        )

    # --- tensors ----------------------------------------------------------------------------------------------------

    def filled(self, scalar: ir.Value, sizes: Sequence[Size]) -> ir.Value:
        """Emit a tensor of shape ``sizes`` filled with ``scalar``."""
        return self.broadcast(scalar, [], sizes)

    def broadcast(self, x: ir.Value, axes: Sequence[int], sizes: Sequence[Size]) -> ir.Value:
        """Broadcast ``x`` to the shape ``sizes``; ``axes`` are the result axes that its axes map to."""
        return self.broadcast_to(x, self.vector(sizes), axes, self.tensor(sizes, self.element(x)))

    def iota(self, axis: int, sizes: Sequence[Size]) -> ir.Value:
        """Emit 0, 1, 2, … along ``axis``, as i64."""
        along = {"iota_dimension": self.i64(axis)}
        return self.op("stablehlo.dynamic_iota", [self.tensor(sizes, "i64")], [self.vector(sizes)], along).result

    def converted(self, x: ir.Value, element: str) -> ir.Value:
        """Return ``x`` with elements of type ``element``."""
        return x if self.element(x) == element else self.stablehlo("convert", with_element(x.type, element), x)

    def first(self, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
        """Emit the leading slice of ``x`` of shape ``sizes``."""
        kind = self.tensor(sizes, self.element(x))
        starts, strides = self.vector([0] * len(sizes)), self.vector([1] * len(sizes))
        return self.stablehlo("real_dynamic_slice", kind, x, starts, self.vector(sizes), strides)

    def compare_elements(self, direction: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """Emit a comparison of tensors of one type, with the comparison type that suits their elements."""
        element = self.element(a)
        if element == "i1" or element.startswith("ui"):
            return self.compare(direction, a, b, "UNSIGNED")
        return self.compare(direction, a, b, "SIGNED" if element.startswith("i") else "FLOAT")


OperatorLowering = Callable[[ir.Operation, TensorEmitter], "Sequence[ir.Value] | None"]
"""Emits the results of an operator as builtin tensors. If it does not match, returns None before emitting anything."""
