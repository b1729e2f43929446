"""Emitting TOSA."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, with_element


class TosaOps(Emitter):
    """Emits operations of TOSA."""

    def const(self, values: ir.Attribute) -> ir.Value:
        """Emit a ``tosa.const`` of the type of ``values``."""
        return self.op("tosa.const", [values.type], (), {"values": values}).result

    def const_array(self, values: np.ndarray) -> ir.Value:
        """Emit a ``tosa.const`` of the elements of ``values``."""
        return self.const(ir.DenseElementsAttr.get(values, context=self.context))

    def const_shape(self, sizes: Sequence[int]) -> ir.Value:
        """Emit a ``!tosa.shape``."""
        values = self.attribute(f"dense<{list(sizes)}> : tensor<{len(sizes)}xindex>")
        return self.op("tosa.const_shape", [f"!tosa.shape<{len(sizes)}>"], (), {"values": values}).result

    def cast_element(self, x: ir.Value, element: str) -> ir.Value:
        """Emit a ``tosa.cast`` of ``x`` to another element type."""
        return self.value("tosa.cast", with_element(x.type, element), x)

    def product(self, type_: ir.Type, a: ir.Value, b: ir.Value) -> ir.Value:
        """Emit a ``tosa.mul`` without a shift."""
        return self.value("tosa.mul", type_, a, b, self.const_array(np.zeros(1, np.int8)))
