"""Fingerprint of a graph, equal for graphs that compute the same."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import sympy
import torch
from torch import SymInt, fx
from torch.utils import _pytree as pytree


def fingerprint(module: fx.GraphModule) -> Hashable:
    """Return a key equal for graphs with the same operators, arguments, sizes (up to symbol names) and constants.

    Names of nodes, weights and source lines are ignored.
    """
    return _Names().graph(module)


@dataclass(frozen=True)
class _Names:
    """Canonical names of symbols, in order of first use."""

    symbols: dict[sympy.Basic, sympy.Symbol] = field(default_factory=dict[sympy.Basic, sympy.Symbol])

    def graph(self, module: fx.GraphModule) -> Hashable:
        numbers = {node: number for number, node in enumerate(module.graph.nodes)}

        def argument(leaf: Any) -> Hashable:
            # Compare the text: 1, 1.0 and True are equal, as are 0.0 and -0.0, and NaN is not equal to itself.
            return ("node", numbers[leaf]) if isinstance(leaf, fx.Node) else (type(leaf).__name__, repr(leaf))

        def row(node: fx.Node) -> Hashable:
            if node.op == "get_attr":
                return node.op, self.attribute(module, str(node.target))
            target = node.target if node.op == "call_function" else None
            leaves, nesting = pytree.tree_flatten((node.args, node.kwargs))
            return node.op, target, tuple(map(argument, leaves)), str(nesting), self.value(node.meta.get("val"))

        return tuple(map(row, module.graph.nodes))

    def attribute(self, module: fx.GraphModule, path: str) -> Hashable:
        value = attrgetter(path)(module)
        if isinstance(value, fx.GraphModule):
            return self.graph(value)
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.device.type == "cpu":
            bits = value.detach().contiguous().view(-1).view(torch.uint8)
            return str(value.dtype), tuple(value.shape), bits.numpy().tobytes()
        return id(value)

    def value(self, example: Any) -> Hashable:
        return tuple(map(self.leaf, pytree.tree_leaves(example)))

    def leaf(self, leaf: Any) -> Hashable:
        if isinstance(leaf, torch.Tensor):
            sizes = (*leaf.shape, *leaf.stride()) if leaf.layout is torch.strided else tuple(leaf.shape)
            return type(leaf).__name__, str(leaf.dtype), str(leaf.layout), str(leaf.device), *map(self.size, sizes)
        return type(leaf).__name__, self.size(leaf)

    def size(self, size: Any) -> Hashable:
        if not isinstance(size, SymInt):
            return str(size)
        for symbol in sorted(size.node.expr.free_symbols, key=str):
            if symbol not in self.symbols:
                limits = size.node.shape_env.bound_sympy(symbol)
                self.symbols[symbol] = sympy.Symbol(f"{len(self.symbols)}: {limits}", **symbol.assumptions0)
        return str(size.node.expr.xreplace(self.symbols))
