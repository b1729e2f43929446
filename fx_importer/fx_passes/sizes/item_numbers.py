"""Python numbers that are computed from items of tensors, as rank-0 tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.node_rewriting import converted

ITEMS = (aten.item.default, aten._local_scalar_dense.default)


class ItemNumbers:
    """The rank-0 tensors of numbers, each emitted once, where the number is computed."""

    def __init__(self, floats: torch.dtype):
        self._dtypes: dict[type, torch.dtype] = {SymBool: torch.bool, SymInt: torch.int64, SymFloat: floats}
        self._floats = floats
        self._made: dict[fx.Node, fx.Node | None] = {}
        self.used = False
        """Whether anything was asked for that is such a number."""

    def of(self, node: Any) -> fx.Node | None:
        """Return ``node``, a number that is computed from items, as a tensor; None for anything else."""
        if not isinstance(node, fx.Node) or type(value_of(node)) not in self._dtypes:
            return None
        if node not in self._made:
            self._made[node] = self._emit(node)
        self.used = self.used or self._made[node] is not None
        return self._made[node]

    def _emit(self, node: fx.Node) -> fx.Node | None:
        dtype = self._dtypes[type(value_of(node))]
        if node.target in ITEMS:
            read = emit(node, aten.clone.default, emit(node, aten.reshape.default, node.args[0], []))  # as it is now
            return converted(node, read, dtype)
        if node.target in (torch.sym_float, torch.sym_int, math.trunc):
            x = self.of(node.args[0])
            return x and converted(node, x, dtype)
        function = _ARITHMETIC.get(node.target)
        parts = [self.of(argument) for argument in node.args]
        known = next((part for part in parts if part is not None), None)
        if function is None or known is None or node.kwargs:
            return None
        kinds = []
        for position, operand in enumerate(node.args):
            if parts[position] is None and _is_size(operand):
                parts[position] = emit(node, aten.scalar_tensor.default, operand, dtype=torch.int64)
            elif parts[position] is None:
                if type(operand) not in (bool, int, float):
                    return None
                kind = {bool: torch.bool, int: torch.int64, float: self._floats}[type(operand)]
                parts[position] = emit(node, aten.full_like.default, known, operand, dtype=kind)
            kinds.append(value_of(parts[position]).dtype)
        common = self._floats if self._floats in kinds or node.target in _OF_FLOATS else torch.int64
        if set(kinds) == {torch.bool} and node.target not in _OF_NUMBERS:
            common = torch.bool
        if node.target is torch.sym_ite:
            common = dtype
        first = 1 if node.target is torch.sym_ite else 0
        operands = [x if i < first else converted(node, x, common) for i, x in enumerate(parts) if x is not None]
        return converted(node, function(node, *operands), dtype)


def _is_size(number: Any) -> bool:
    """Return whether ``number`` is computed from sizes of inputs alone."""
    value = value_of(number) if isinstance(number, fx.Node) else None
    return isinstance(value, SymInt) and not free_unbacked_symbols(value)


def _calls(target: Any, **keywords: Any) -> Callable[..., fx.Node]:
    return lambda before, *parts: emit(before, target, *parts, **keywords)


_FUNCTIONS = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
_OF_NUMBERS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow, operator.neg)
_ARITHMETIC: dict[Any, Callable[..., fx.Node]] = {
    operator.add: _calls(aten.add.Tensor),
    operator.sub: _calls(aten.sub.Tensor),
    operator.mul: _calls(aten.mul.Tensor),
    operator.truediv: _calls(aten.div.Tensor),
    operator.floordiv: _calls(aten.div.Tensor_mode, rounding_mode="floor"),
    operator.mod: _calls(aten.remainder.Tensor),
    operator.pow: _calls(aten.pow.Tensor_Tensor),
    operator.neg: _calls(aten.neg.default),
    operator.abs: _calls(aten.abs.default),
    operator.eq: _calls(aten.eq.Tensor),
    operator.ne: _calls(aten.ne.Tensor),
    operator.lt: _calls(aten.lt.Tensor),
    operator.le: _calls(aten.le.Tensor),
    operator.gt: _calls(aten.gt.Tensor),
    operator.ge: _calls(aten.ge.Tensor),
    operator.and_: _calls(aten.bitwise_and.Tensor),
    operator.or_: _calls(aten.bitwise_or.Tensor),
    torch.sym_max: _calls(aten.maximum.default),
    torch.sym_min: _calls(aten.minimum.default),
    torch.sym_not: _calls(aten.logical_not.default),
    torch.sym_ite: _calls(aten.where.self),
    math.floor: _calls(aten.floor.default),
    math.ceil: _calls(aten.ceil.default),
    **{
        symbolic: _calls(getattr(aten, name).default)
        for name in _FUNCTIONS
        if (symbolic := getattr(torch, f"_sym_{name}", None)) is not None
    },
}
_OF_FLOATS = (operator.truediv, *(f for name in _FUNCTIONS if (f := getattr(torch, f"_sym_{name}", None)) is not None))

Consumer = Callable[[fx.Node, ItemNumbers], "fx.Node | None"]
"""Takes a node that may take a number, and returns what replaces it; None if it does not, or has changed in place."""
