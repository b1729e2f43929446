"""The two real forms of a complex value: a (real, imaginary) pair of tensors, or one tensor with a last axis of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten, prims
from fx_importer.fx_graph.programs import is_empty
from fx_importer.fx_passes.node_rewriting import same_size

Parts = tuple[fx.Node, fx.Node]
"""The real and the imaginary part."""


class Forms:
    """The real forms of the complex values of one graph, each created on first use.

    Args:
        graph: the graph, before it is rewritten.
        real: the real dtype of the parts, by complex dtype.
    """

    def __init__(self, graph: fx.Graph, real: Mapping[torch.dtype, torch.dtype]):
        self.real = real
        self.values = {node: value_of(node) for node in graph.nodes}
        """Example values of the nodes before the rewrite."""
        self._parts: dict[fx.Node, Parts] = {}
        """Parts of a complex node; for a list of complex tensors, the lists of their parts."""
        self._joined: dict[fx.Node, fx.Node] = {}
        self._slices: dict[fx.Node, Parts] = {}
        """The two slices of a joined node, or of the list of its slices."""

    def is_complex(self, value: Any) -> bool:
        """Return whether ``value`` is a tensor of a complex dtype that is rewritten."""
        return isinstance(value, Tensor) and value.dtype in self.real

    def was_complex(self, argument: Any) -> bool:
        """Return whether ``argument`` is a node that was complex, or a list of complex tensors."""
        form = self.values.get(argument) if isinstance(argument, fx.Node) else None
        return any(map(self.is_complex, tree_leaves(form)))

    def complex_dtypes(self, node: fx.Node) -> list[torch.dtype]:
        """Return the complex dtypes of ``node`` and its operands, its own first."""
        leaves = tree_leaves([self.values.get(form) for form in (node, *node.all_input_nodes)])
        return list(dict.fromkeys(leaf.dtype for leaf in leaves if self.is_complex(leaf)))

    def mark_joined(self, node: fx.Node) -> None:
        """Make ``node`` its own joined form: its value comes from outside of the graph."""
        node.meta["val"] = tree_map(lambda e: as_real(e) if self.is_complex(e) else e, self.values[node])
        if self.is_complex(self.values[node]):
            self._joined[node] = node

    def parts(self, node: fx.Node, before: fx.Node) -> Parts:
        """Return the real and imaginary part of a node that was complex."""
        if node not in self._parts:
            self._parts[node] = parts = slices(self._joined[node], before)
            self._slices[self._joined[node]] = parts
        return self._parts[node]

    def joined(self, node: fx.Node, before: fx.Node) -> fx.Node:
        """Return a node that was complex as one real tensor with a last axis of two."""
        if node not in self._joined:
            self._joined[node] = joined = join(self._parts[node], before)
            self._slices[joined] = self._parts[node]
        return self._joined[node]

    def set_parts(self, node: fx.Node, parts: Parts) -> None:
        """Record the parts of a complex node."""
        self._parts[node] = parts

    def set_slices(self, joined: fx.Node, parts: Parts) -> None:
        """Record the slices of ``joined``, or of the list of them."""
        self._slices[joined] = parts

    def has_parts(self, node: Any) -> bool:
        """Return whether the parts of ``node`` are recorded."""
        return node in self._parts

    def cached_slices(self, joined: Any) -> Parts | None:
        """Return the recorded slices of ``joined``, or of the list of them; None if there are none."""
        return self._slices.get(joined)

    def slices_of(self, joined: fx.Node, before: fx.Node) -> Parts:
        """Return the two slices of a real tensor with a last axis of two."""
        if joined not in self._slices:
            self._slices[joined] = slices(joined, before)
        return self._slices[joined]


def join(parts: Parts, before: fx.Node) -> fx.Node:
    """Return two parts as one tensor with a last axis of two."""
    value = value_of(parts[0])
    axis = value.dim()
    if is_empty(value):
        return emit(before, aten.full.default, [*value.shape, 2], 0, dtype=value.dtype)
    return emit(before, aten.cat.default, [emit(before, aten.unsqueeze.default, part, axis) for part in parts], axis)


def slices(joined: fx.Node, before: fx.Node) -> Parts:
    """Return the two slices of a tensor with a last axis of two."""
    axis = value_of(joined).dim() - 1
    real, imaginary = (emit(before, aten.select.int, joined, axis, part) for part in (0, 1))
    return real, imaginary


def broadcast(nodes: Sequence[Any], like: Tensor, before: fx.Node) -> tuple[fx.Node, ...]:
    """Return ``nodes`` broadcast to the shape of ``like``, which their sum has; dynamic sizes are read from them."""
    sizes: list[Any] = []
    for axis, size in enumerate(like.shape, start=-like.dim()):
        widest = [node for node in nodes if value_of(node).dim() >= -axis]
        owner = next((operand for operand in widest if same_size(value_of(operand).shape[axis], size)), None)
        static = isinstance(size, int) or owner is None
        sizes.append(size if static else emit(before, aten.sym_size.int, owner, axis + value_of(owner).dim()))
    return tuple(node if _has_shape(node, like) else emit(before, aten.expand.default, node, sizes) for node in nodes)


def _has_shape(node: fx.Node, like: Tensor) -> bool:
    shape = value_of(node).shape
    return len(shape) == like.dim() and all(map(same_size, shape, like.shape))


def with_dtype(node: fx.Node, dtype: torch.dtype, before: fx.Node) -> fx.Node:
    """Return ``node`` converted to ``dtype``."""
    return node if value_of(node).dtype == dtype else emit(before, prims.convert_element_type.default, node, dtype)


def zeros(like: fx.Node, dtype: torch.dtype, before: fx.Node) -> fx.Node:
    """Return zeros of the shape of ``like``."""
    return emit(before, aten.full_like.default, like, 0.0, dtype=dtype)


def as_real(value: Tensor) -> Tensor:
    """Return `torch.view_as_real` of an example value."""
    if isinstance(value, FakeTensor):
        with value.fake_mode, torch.no_grad():
            return torch.view_as_real(value.resolve_conj())
    return torch.view_as_real(value.resolve_conj())
