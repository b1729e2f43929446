"""Tensors of true elements with dynamic axes, computed from tensors that have these axes, and the sizes as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch import SymInt, Tensor, fx

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten

Size = int | SymInt


class Axes:
    """The axes of dynamic size that a graph has so far."""

    def __init__(self) -> None:
        self._first: dict[sympy.Expr, tuple[fx.Node, int]] = {}

    def add(self, node: fx.Node) -> None:
        """Record the dynamic axes of ``node``."""
        value = value_of(node)
        if not isinstance(value, Tensor) or value.is_complex() or 0 in [s for s in value.shape if type(s) is int]:
            return
        for axis, size in enumerate(value.shape):
            if isinstance(size, SymInt):
                self._first.setdefault(size.node.expr, (node, axis))

    def ones(self, before: fx.Node, shape: Sequence[Size]) -> fx.Node | None:
        """Return true elements of ``shape``; None if no axis of the graph has one of its sizes."""
        rank = len(shape)
        static = [size if type(size) is int else 1 for size in shape]
        result = emit(before, aten.full.default, static, True, dtype=torch.bool)
        for axis, size in enumerate(shape):
            if not isinstance(size, SymInt):
                continue
            ones = self._axis(before, size.node.expr)
            if ones is None:
                return None
            wide = emit(before, aten.reshape.default, ones, [-1 if dim == axis else 1 for dim in range(rank)])
            result = emit(before, aten.logical_or.default, result, wide)
        return result

    def number(self, before: fx.Node, size: SymInt, dtype: torch.dtype = torch.int64) -> fx.Node | None:
        """Return ``size`` as a rank-0 tensor."""
        return self._number(before, size.node.expr, dtype)

    def _number(self, before: fx.Node, size: sympy.Expr, dtype: torch.dtype) -> fx.Node | None:
        if isinstance(size, sympy.Integer):
            return emit(before, aten.full.default, [], int(size), dtype=dtype)
        if size not in self._first and (size.is_Add or size.is_Mul):
            a, b = (self._number(before, two_term, dtype) for two_term in _two_terms(size))
            operator = aten.add.Tensor if size.is_Add else aten.mul.Tensor
            return None if a is None or b is None else emit(before, operator, a, b)
        ones = self._axis(before, size)
        if ones is None:
            return None
        one, zero = (emit(before, aten.full.default, [1], number, dtype=torch.int64) for number in (1, 0))
        total = emit(before, aten.sum.dim_IntList, emit(before, aten.where.self, ones, one, zero), [0])
        return total if dtype is torch.int64 else emit(before, aten._to_copy.default, total, dtype=dtype)

    def _axis(self, before: fx.Node, size: sympy.Expr) -> fx.Node | None:
        """Return true elements of the rank-1 shape ``[size]``."""
        if size in self._first:
            return _true_along(before, *self._first[size])
        if isinstance(size, sympy.Integer):
            return emit(before, aten.full.default, [int(size)], True, dtype=torch.bool) if size > 0 else None
        if size.is_Add:
            parts = [self._axis(before, two_term) for two_term in _two_terms(size)]
            return None if None in parts else emit(before, aten.cat.default, parts)
        if size.is_Mul:
            first, rest = _two_terms(size)
            rows, columns = self._axis(before, first), self._axis(before, rest)
            if rows is None or columns is None:
                return None
            rows, columns = (
                emit(before, aten.unsqueeze.default, rows, 1),
                emit(before, aten.unsqueeze.default, columns, 0),
            )
            return emit(before, aten.reshape.default, emit(before, aten.logical_or.default, rows, columns), [-1])
        return None


def _true_along(before: fx.Node, x: fx.Node, axis: int) -> fx.Node:
    """Return as many true elements as ``x`` has along ``axis``, whatever its elements are."""
    for other in reversed(range(value_of(x).dim())):
        if other != axis:
            x = emit(before, aten.select.int, x, other, 0)
    if value_of(x).dtype in (torch.int8, torch.int16):  # TOSA compares 32 bits
        x = emit(before, aten._to_copy.default, x, dtype=torch.int32)
    if value_of(x).dtype != torch.bool:
        x = emit(before, aten.eq.Tensor, x, x)
    return emit(before, aten.logical_or.default, x, emit(before, aten.full.default, [1], True, dtype=torch.bool))


def _two_terms(size: sympy.Expr) -> tuple[Any, Any]:
    """Return the first term of a sum or product, and the rest."""
    first, *rest = size.args
    return first, size.func(*rest)
