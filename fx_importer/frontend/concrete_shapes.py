"""Shapes of the operators of an exported program for known sizes, compared with the shapes that were traced."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from fx_importer.frontend.torch_patches import META_LOG, patched
from fx_importer.fx_graph.operators import aten

_EXTREMA = (
    *(aten.max, aten.min, aten.amax, aten.amin, aten.aminmax, aten.argmax, aten.argmin),
    *(aten.median, aten.nanmedian, aten.mode, aten.kthvalue),
)
"""Reductions that no elements have no result of; eager PyTorch refuses them, and fake tensors do not."""

_LOG = logging.getLogger(FakeTensorMode.__module__)

_NOT_KNOWN = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)


class ConcreteShapes:
    """The shapes of operators for sizes that are known, computed without data; equal calls once.

    Args:
        environment: of the program.
        sizes: by symbol.
        known: whether calls agree, by what determines it; several sizes of a program share it.
    """

    def __init__(self, environment: ShapeEnv, sizes: Mapping[sympy.Symbol, sympy.Integer], known: dict[Any, bool]):
        self._environment, self._sizes, self._known = environment, dict(sizes), known
        self._mode = FakeTensorMode()
        self._numbers: dict[sympy.Expr, Any] = {}

    def agree(self, node: fx.Node) -> bool:
        """Return whether the operator of ``node`` has the shapes that were traced; also if that cannot be known."""
        try:
            traced = [self._value(leaf) for leaf in pytree.tree_leaves(node.meta.get("val"))]
            operands = map_arg((node.args, node.kwargs), lambda argument: self._described(argument.meta["val"]))
            key = (node.target, str(operands), str(traced))
        except (ArithmeticError, KeyError, TypeError, ValueError):  # not a tensor or a number, or of unknown size
            return True
        if key not in self._known:
            self._known[key] = self._agree(node, [leaf.shape for leaf in traced if isinstance(leaf, _Described)])
        return self._known[key]

    def _agree(self, node: fx.Node, traced: list[tuple[int, ...]]) -> bool:
        with torch.no_grad(), patched({META_LOG.on(_LOG): [*_LOG.filters, lambda _: False]}):
            try:
                with self._mode:
                    computed = self._result(node)
                if _is_extremum(node) and self._is_empty(node):
                    self._result(node)
            except _NOT_KNOWN:
                return True
            except Exception:  # eager PyTorch raises too; a result without elements cannot be wrong
                return bool(traced) and all(0 in shape for shape in traced)
        shapes = [tuple(leaf.shape) for leaf in pytree.tree_leaves(computed) if isinstance(leaf, torch.Tensor)]
        return shapes == traced

    def _is_empty(self, node: fx.Node) -> bool:
        operands = [self._described(argument.meta["val"]) for argument in node.all_input_nodes]
        return any(0 in leaf.shape for leaf in pytree.tree_leaves(operands) if isinstance(leaf, _Described))

    def _result(self, node: fx.Node) -> Any:
        args, kwargs = map_arg((node.args, node.kwargs), lambda argument: self._made(argument.meta["val"]))
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _described(self, value: Any) -> Any:
        return pytree.tree_map(self._value, value)

    def _made(self, value: Any) -> Any:
        def made(leaf: Any) -> Any:
            if not isinstance(leaf, _Described):
                return leaf
            return torch.empty_strided(leaf.shape, leaf.stride, dtype=leaf.dtype, device="cpu").zero_()

        return pytree.tree_map(made, self._described(value))

    def _value(self, leaf: Any) -> Any:
        """Return a tensor without its data, or a number. Raises TypeError or ValueError for an unknown value."""
        if isinstance(leaf, FakeTensor) and leaf.layout is torch.strided:
            return _Described(tuple(map(self._size, leaf.shape)), tuple(map(self._size, leaf.stride())), leaf.dtype)
        if isinstance(leaf, torch.Tensor):
            raise TypeError
        if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
            number = self._known_number(leaf)
            return type(leaf.node.pytype(number))(number)
        return leaf

    def _size(self, size: Any) -> int:
        return size if isinstance(size, int) else max(0, int(self._known_number(size)))  # x[1:] of an empty x is empty

    def _known_number(self, size: Any) -> Any:
        expression = size.node.expr
        if expression not in self._numbers:
            self._numbers[expression] = self._environment.replace(expression).xreplace(self._sizes)
        if self._numbers[expression].free_symbols:
            raise ValueError
        return self._numbers[expression]


def _is_extremum(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target.overloadpacket in _EXTREMA


@dataclass(frozen=True)
class _Described:
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
