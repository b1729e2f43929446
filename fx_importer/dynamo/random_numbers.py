"""Random numbers of compiled graphs: PyTorch draws them, and the graph takes them as inputs.

They are therefore the numbers that eager PyTorch draws, from the same generator in the same order. No output type has
a random number generator that could reproduce them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import SymInt, Tensor, fx
from torch._ops import OpOverload
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node_at
from fx_importer.errors import UnsupportedProgramError
from fx_importer.fx_graph.operators import aten

_DRAWING = frozenset(
    getattr(packet, name)
    for packet in (
        *(aten.rand, aten.randn, aten.randint, aten.randperm),
        *(aten.rand_like, aten.randn_like, aten.randint_like, aten.uniform),
        *(aten.exponential, aten.log_normal, aten.cauchy, aten.geometric),
        *(aten.random, aten.normal_functional),
    )
    for name in packet.overloads()
) | {aten.bernoulli.p, aten.normal.float_float}
"""Random operators that read only the sizes and dtype of their tensors, not the elements."""


def _native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Draw as `torch.dropout` does on CPUs, in the memory order of ``x``. AOTAutograd uses this operator for it."""
    if train is False:
        return x, torch.ones_like(x, dtype=torch.bool)
    kept = aten.bernoulli.p(torch.empty_like(x), 1 - p).bool()
    return x * kept * (0.0 if p == 1 else 1 / (1 - p)), kept


def _bernoulli(p: Tensor, *, generator: Any = None) -> Tensor:
    return (aten.rand_like.default(p) < p).to(p.dtype)


def _normal(mean: Tensor | float, std: Tensor | float = 1.0, *, generator: Any = None) -> Tensor:
    like = mean if isinstance(mean, Tensor) else std
    assert isinstance(like, Tensor)
    shape = torch.broadcast_shapes(*(value.shape for value in (mean, std) if isinstance(value, Tensor)))
    return aten.normal_functional.default(like.new_empty(shape), 0.0, 1.0) * std + mean


def _multinomial(weights: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """Sample as eager PyTorch does.

    With several samples and replacement this is unsupported: the numbers drawn depend on values.
    """
    if replacement and num_samples > 1:
        return NotImplemented
    raced = weights / aten.exponential.default(torch.empty_like(weights), 1.0)
    return raced.argmax(-1, keepdim=True) if num_samples == 1 else raced.topk(num_samples).indices


RULES: dict[OpOverload, Callable[..., Any]] = {
    aten.native_dropout.default: _native_dropout,
    aten.bernoulli.default: _bernoulli,
    aten.normal.Tensor_float: _normal,
    aten.normal.float_Tensor: _normal,
    aten.normal.Tensor_Tensor: _normal,
    aten.multinomial.default: _multinomial,
}
"""Decompositions of random operators that read elements into ones that do not. They draw what eager PyTorch draws."""


@dataclass(frozen=True)
class Like:
    """The metadata of a tensor argument whose elements are not read."""

    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class Draw:
    """A call of a random operator. Sizes may be expressions."""

    operator: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self, sizes: Mapping[sympy.Symbol, int]) -> torch.Tensor:
        """Draw with the given values of the symbols."""

        def value(leaf: Any) -> Any:
            if isinstance(leaf, sympy.Expr):
                number: Any = leaf.xreplace({symbol: sympy.Integer(size) for symbol, size in sizes.items()})
                return int(number)
            if isinstance(leaf, Like):
                shape, stride = (tuple(map(value, numbers)) for numbers in (leaf.shape, leaf.stride))
                return torch.empty_strided(shape, stride, dtype=leaf.dtype, device=leaf.device)
            return leaf

        args, kwargs = pytree.tree_map(value, (self.args, dict(self.kwargs)))
        if self.operator is aten.bernoulli.p:  # `bernoulli_` and dropout in a graph, which draw in memory order
            return args[0].bernoulli_(*args[1:], **kwargs)
        return self.operator(*args, **kwargs)


def draw_outside(graph: fx.Graph) -> tuple[Draw, ...]:
    """Replace random operators of ``graph`` by inputs, after the others; return their calls in order.

    Raises:
        UnsupportedProgramError: listing the operators whose random numbers depend on values.
    """
    draws: list[Draw] = []
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in list(graph.nodes):
        if not is_drawn(node):
            continue
        args, kwargs = map_arg((node.args, node.kwargs), _metadata)
        with graph.inserting_before(first):
            drawn = graph.placeholder(f"drawn_{len(draws)}")
        drawn.meta.update(node.meta)
        node.replace_all_uses_with(drawn)
        if first is node:
            first = node.next
        graph.erase_node(node)
        draws.append(Draw(node.target, args, kwargs))
    if left := [node for node in graph.nodes if _is_random(node)]:
        raise UnsupportedProgramError(
            "PyTorch draws a graph's random numbers before the graph runs, but some depend on values that it computes. "
            "Keep these calls out of what is compiled, with torch.compiler.disable:",
            [
                unsupported_node_at(node, str(node.target), "draws random numbers that depend on its operands")
                for node in left
            ],
        )
    return tuple(draws)


def is_drawn(node: fx.Node) -> bool:
    """Return whether `draw_outside` makes an input of ``node``."""
    return node.op == "call_function" and node.target in _DRAWING


def _is_random(node: fx.Node) -> bool:
    if not isinstance(node.target, OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    arguments = _arguments(node)
    return arguments.get("dropout_p") != 0 and arguments.get("training") is not False


def _arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of an operator by their names in its schema."""
    assert isinstance(node.target, OpOverload)
    schema = node.target._schema.arguments
    arguments = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    arguments.update((argument.name, value) for argument, value in zip(schema, node.args, strict=False))
    return arguments | node.kwargs


def _metadata(node: fx.Node) -> Any:
    example = node.meta["val"]
    if isinstance(example, torch.Tensor):
        shape, stride = (tuple(map(_size, sizes)) for sizes in (example.shape, example.stride()))
        return Like(shape, stride, example.dtype, example.device)
    return _size(example)


def _size(size: Any) -> Any:
    return size.node.expr if isinstance(size, SymInt) else size
