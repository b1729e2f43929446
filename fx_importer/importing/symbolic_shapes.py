"""Symbolic shapes in the module: ``torch.symbolic_int`` and ``torch.bind_symbolic_shape``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch import fx

from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.importing.value_map import Binding
from fx_importer.mlir.bindings import ir
from fx_importer.symbolic.conversions import LARGEST, NotAffine, to_affine, to_integer


class Symbols:
    """Symbols of one function, with the ranges that export derived for them."""

    def __init__(self, build: NodeBuilder, ranges: Mapping[Any, Any]):
        """``ranges`` is ``ExportedProgram.range_constraints``."""
        self._build = build
        self._context = build.fx_importer.context
        # Export may also constrain an expression, such as twice a symbol.
        symbols = {symbol: limits for symbol, limits in ranges.items() if isinstance(symbol, sympy.Symbol)}
        self._values: dict[Any, ir.Value] = {s: self._declare(s, limits) for s, limits in symbols.items()}

    def _declare(self, symbol: sympy.Symbol, limits: Any) -> ir.Value:
        i64 = ir.IntegerType.get_signless(64, context=self._context)
        attributes = {
            "symbol_name": ir.StringAttr.get(str(symbol), context=self._context),
            "min_val": ir.IntegerAttr.get(i64, _clamp(limits.lower)),
            "max_val": ir.IntegerAttr.get(i64, _clamp(limits.upper)),
        }
        return self._build.op("torch.symbolic_int", [self._build.types.parse("!torch.int")], (), attributes).result

    def bind(self, node: fx.Node, binding: Binding) -> None:
        """Emit ``torch.bind_symbolic_shape`` for the tensors of ``node`` whose shapes are symbolic and affine."""
        example = node.meta.get("val")
        examples = example if isinstance(example, (list, tuple)) else [example]
        values = binding if isinstance(binding, tuple) else (binding,)
        if len(examples) == len(values):
            for tensor, value in zip(examples, values, strict=True):
                if isinstance(tensor, torch.Tensor) and isinstance(value, ir.Value):
                    self._bind_tensor(tensor, value)

    def _bind_tensor(self, tensor: torch.Tensor, value: ir.Value) -> None:
        dims = [d.node.expr if isinstance(d, torch.SymInt) else sympy.Integer(d) for d in tensor.shape]
        used = sorted({s for d in dims for s in d.free_symbols}, key=str)
        if not used or any(symbol not in self._values for symbol in used):
            return
        positions: dict[Any, int] = {symbol: i for i, symbol in enumerate(used)}
        try:
            expressions = [to_affine(dim, positions, self._context) for dim in dims]
        except NotAffine:
            return
        shape = ir.AffineMapAttr.get(ir.AffineMap.get(0, len(used), expressions, self._context))
        operands = [value, *(self._values[symbol] for symbol in used)]
        self._build.op("torch.bind_symbolic_shape", [], operands, {"shape_expressions": shape})


def _clamp(limit: Any) -> int:
    """Return a bound as a 64-bit integer, clamped to the largest or smallest one."""
    bound = to_integer(limit)
    return bound if bound is not None else LARGEST if limit > 0 else -LARGEST - 1
