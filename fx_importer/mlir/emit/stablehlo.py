"""Emitting StableHLO, for which the wheel has no builders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter


class StablehloOps(Emitter):
    """Emits operations of StableHLO."""

    def stablehlo(self, name: str, result: ir.Type | str, *operands: ir.Value) -> ir.Value:
        """Emit ``stablehlo.<name>``, which has one result and no attributes, and return the result."""
        return self.value(f"stablehlo.{name}", result, *operands)

    def const(self, value: ir.Attribute) -> ir.Value:
        """Emit a ``stablehlo.constant`` of the type of ``value``."""
        return self.op("stablehlo.constant", [value.type], (), {"value": value}).result

    def dense_constant(self, elements: str, type_: ir.Type | str) -> ir.Value:
        """Emit a constant tensor; ``elements`` is what stands in the brackets of ``dense<…>``."""
        return self.const(self.attribute(f"dense<{elements}> : {type_}"))

    def zeros(self, type_: ir.Type) -> ir.Value:
        """Emit a constant tensor of zeros."""
        element = ir.RankedTensorType(type_).element_type
        number = "0" if isinstance(element, ir.IntegerType) else "0.0"
        elements = f"({number}, {number})" if isinstance(element, ir.ComplexType) else number
        return self.parsed(f"stablehlo.constant dense<{elements}> : {type_}").result

    def compare(
        self, direction: str, a: ir.Value, b: ir.Value, compare_type: ir.Attribute | str | None = None
    ) -> ir.Value:
        """Emit a comparison of tensors of one type: ``direction`` is ``EQ``, ``NE``, ``LT``, ``LE``, ``GT`` or ``GE``.

        ``compare_type`` is ``FLOAT``, ``SIGNED`` and so on, or such an attribute; StableHLO infers one if it is None.
        """
        attributes = {"comparison_direction": self.attribute(f"#stablehlo<comparison_direction {direction}>")}
        if isinstance(compare_type, str):
            compare_type = self.attribute(f"#stablehlo<comparison_type {compare_type}>")
        if compare_type is not None:
            attributes["compare_type"] = compare_type
        return self.op("stablehlo.compare", [self.tensor(self.shape(a), "i1")], [a, b], attributes).result

    def concatenate(self, tensors: Sequence[ir.Value], axis: int, type_: ir.Type | str) -> ir.Value:
        """Emit ``tensors`` one behind the other along ``axis``."""
        return self.op("stablehlo.concatenate", [type_], tensors, {"dimension": self.i64(axis)}).result

    def permute(self, x: ir.Value, order: Sequence[int]) -> ir.Value:
        """Return ``x`` with its axes ``order``."""
        if list(order) == sorted(order):
            return x
        sizes = self.shape(x)
        type_ = self.tensor([sizes[axis] for axis in order], self.element(x))
        return self.op("stablehlo.transpose", [type_], [x], {"permutation": self.array(order)}).result

    def dimension_size(self, x: ir.Value, axis: int) -> ir.Value:
        """Emit the size of ``x`` along ``axis``, as a ``tensor<i32>``."""
        return self.op("stablehlo.get_dimension_size", ["tensor<i32>"], [x], {"dimension": self.i64(axis)}).result

    def broadcast_to(self, x: ir.Value, sizes: ir.Value, axes: Sequence[int], type_: ir.Type) -> ir.Value:
        """Emit ``x``, whose axes are ``axes`` of the result, in the shape that the tensor ``sizes`` holds."""
        dims = {"broadcast_dimensions": self.array(axes)}
        return self.op("stablehlo.dynamic_broadcast_in_dim", [type_], [x, sizes], dims).result

    def fill_region(self, region: ir.Region, kinds: Sequence[ir.Type], body: Callable[..., Sequence[ir.Value]]) -> None:
        """Fill ``region``: ``body`` takes an emitter and block arguments of ``kinds``, and returns the results."""
        block = self.add_block(region, kinds)
        inside = self.inside(block)
        inside.op("stablehlo.return", [], body(inside, *block.arguments))


ELEMENTWISE = frozenset(
    f"stablehlo.{name}"
    for name in (
        "abs",
        "add",
        "and",
        "atan2",
        "cbrt",
        "ceil",
        "clamp",
        "compare",
        "complex",
        "convert",
        "cosine",
        "count_leading_zeros",
        "divide",
        "exponential",
        "exponential_minus_one",
        "floor",
        "imag",
        "is_finite",
        "log",
        "log_plus_one",
        "logistic",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "or",
        "popcnt",
        "power",
        "real",
        "reduce_precision",
        "remainder",
        "round_nearest_afz",
        "round_nearest_even",
        "rsqrt",
        "select",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sine",
        "sqrt",
        "subtract",
        "tan",
        "tanh",
        "xor",
    )
)
"""Operations that compute each element of their result from the elements of their operands at the same place.

Bounds of ``clamp`` and the condition of ``select`` may have rank 0.
"""
