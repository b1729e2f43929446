"""Emitting TOSA."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import Emitter, with_element


class TosaOps(Emitter):
    """Emits operations of TOSA."""

    def tosa_const(self, values: ir.Attribute | np.ndarray) -> ir.Value:
        """Emit a ``tosa.const`` of the type of ``values``."""
        attribute = (
            values if isinstance(values, ir.Attribute) else ir.DenseElementsAttr.get(values, context=self.context)
        )
        return self.op("tosa.const", [attribute.type], (), {"values": attribute}).result

    def const_shape(self, sizes: Sequence[int]) -> ir.Value:
        """Emit a ``!tosa.shape``."""
        values = self.attribute(f"dense<{list(sizes)}> : tensor<{len(sizes)}xindex>")
        return self.op("tosa.const_shape", [f"!tosa.shape<{len(sizes)}>"], (), {"values": values}).result

    def cast_element(self, x: ir.Value, element: str) -> ir.Value:
        """Emit a ``tosa.cast`` of ``x`` to another element type."""
        return self.value("tosa.cast", with_element(x.type, element), x)

    def product(self, type_: ir.Type, a: ir.Value, b: ir.Value) -> ir.Value:
        """Emit a ``tosa.mul`` without a shift."""
        return self.value("tosa.mul", type_, a, b, self.tosa_const(np.zeros(1, np.int8)))
