"""Scales and shifts of channels, such as batch normalization, become part of the weights of the operator before them.

``convolution(x, w, b) * s + t`` is ``convolution(x, w * s, b * s + t)`` where ``s`` and ``t`` have one element per
channel and depend on no input, and ``mm(x, w) * s + t`` is ``mm(x, w * s) + t``. Sums are rounded in another order: in
float32, results differ by about 1e-6 of their size.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from fx_importer.fx_graph.emission import emit, insert_call, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_passes.constant_values import Constants

_LINEAR = (aten.convolution.default, aten.mm.default)
_DTYPES = (torch.float32, torch.float64)
"""In shorter types, scaled weights would be rounded where eager rounds results."""


class _Scales:
    """Folds the scales and shifts of one graph, whose constants are ``constants``."""

    def __init__(self, constants: Constants):
        self._constants = constants
        self._emitted: list[fx.Node] = []
        self._examples: dict[str, Any] = {}
        """Example values by the call that they are results of: layers are often of equal shapes."""

    def rewrite(self, graph: fx.Graph) -> None:
        for node in list(graph.nodes):
            if node.target not in _LINEAR or value_of(node).dtype not in _DTYPES:
                continue
            weights = [operand for operand in node.args[1:3] if isinstance(operand, fx.Node)]
            channels = value_of(node).shape[1]
            if not isinstance(channels, int) or any(operand not in self._constants.nodes for operand in weights):
                continue
            chain = self._chain(node, channels)
            if self._is_shared(node.args[1]):
                continue
            if not any(affine.target is aten.mul.Tensor and isinstance(other, fx.Node) for affine, other in chain):
                # Scales that are numbers stay, and one shift of a product is its bias.
                chain = list(itertools.takewhile(lambda link: isinstance(link[1], fx.Node), chain))
                if len(chain) <= (node.target is aten.mm.default):
                    continue
            self._fold(node, chain, channels)

    def _chain(self, node: fx.Node, channels: int) -> list[tuple[fx.Node, Any]]:
        """Return the scales and shifts of the result of ``node``, in order, each with its constant operand."""
        chain: list[tuple[fx.Node, Any]] = []
        while len(node.users) == 1:
            user = next(iter(node.users))
            if (
                user.target not in (aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor)
                or user.kwargs.get("alpha", 1) != 1
            ):
                break
            first, second = user.args[:2]
            other: Any = second if first is node else first
            if user.target is aten.sub.Tensor and first is not node:
                break
            if value_of(user).dtype != value_of(node).dtype or not self._is_by_channel(other, node, channels):
                break
            chain.append((user, other))
            node = user
        return chain

    def _fold(self, node: fx.Node, chain: list[tuple[fx.Node, Any]], channels: int) -> None:
        """Replace ``node`` and the ``chain`` of scales and shifts after it by one operator with other weights."""
        self._emitted = []
        end = chain[-1][0]
        scale: fx.Node | None = None
        is_convolution = node.target is aten.convolution.default
        shift: Any = node.args[2] if is_convolution else None
        for affine, other in chain:
            vector = self._vector(end, other, channels)
            if affine.target is aten.mul.Tensor:
                scale = vector if scale is None else self._emit(end, aten.mul.Tensor, scale, vector)
                shift = None if shift is None else self._emit(end, aten.mul.Tensor, shift, vector)
            elif shift is not None:
                shift = self._emit(end, affine.target, shift, vector)
            else:
                shift = vector if affine.target is aten.add.Tensor else self._emit(end, aten.neg.default, vector)
        arguments: list[Any] = list(node.args)
        if scale is not None:
            arguments[1] = self._scaled(end, node, scale)
        if is_convolution:
            arguments[2] = shift
        if not all(self._is_constant(operand) for operand in (arguments[1], shift) if operand is not None):
            for operand in reversed(self._emitted):
                self._constants.remove(operand)
                operand.graph.erase_node(operand)
            return
        operator: Any = node.target
        result = insert_call(end, operator, tuple(arguments))
        result.meta = dict(node.meta)
        if not is_convolution and shift is not None:
            result = emit(end, aten.add.Tensor, result, shift)
        end.replace_all_uses_with(result)
        for operand in (*(affine for affine, _ in reversed(chain)), node):
            operand.graph.erase_node(operand)

    @staticmethod
    def _is_shared(weight: Any) -> bool:
        """Return whether several operators read a large ``weight``, so that each would get a copy."""
        source = weight.all_input_nodes[0] if weight.target is aten.permute.default else weight
        users = sum(len(user.users) if user.target is aten.permute.default else 1 for user in source.users)
        return users > 1 and value_of(source).numel() * value_of(source).itemsize > 1 << 16

    def _is_by_channel(self, other: Any, node: fx.Node, channels: int) -> bool:
        """Return whether ``other`` is a constant with one element for each channel of ``node``, or one for all."""
        if not isinstance(other, fx.Node):
            return isinstance(other, int | float)
        if other not in self._constants.nodes:
            return False
        rank, shape = value_of(node).ndim, value_of(other).shape
        shape = [1] * (rank - len(shape)) + list(shape)
        return len(shape) == rank and all(size in (1, channels if axis == 1 else 1) for axis, size in enumerate(shape))

    def _vector(self, before: fx.Node, other: Any, channels: int) -> fx.Node:
        """Return ``other`` with shape ``[channels]``."""
        if not isinstance(other, fx.Node):
            dtype = value_of(before).dtype
            return self._emit(before, aten.full.default, [channels], other, dtype=dtype)
        elements = value_of(other).numel()
        vector = other if value_of(other).dim() == 1 else self._emit(before, aten.view.default, other, [elements])
        return vector if elements == channels else self._emit(before, aten.expand.default, vector, [channels])

    def _scaled(self, before: fx.Node, node: fx.Node, scale: fx.Node) -> fx.Node:
        """Return the weight of ``node`` with the elements of each channel multiplied by the element of ``scale``."""
        weight: Any = node.args[1]
        shape = list(value_of(weight).shape)
        if node.target is aten.mm.default:
            if weight.target is aten.permute.default and weight.args[1] == [1, 0]:  # the weight of a linear layer
                column = self._emit(before, aten.unsqueeze.default, scale, 1)
                scaled = self._emit(before, aten.mul.Tensor, weight.args[0], column)
                return self._emit(before, aten.permute.default, scaled, [1, 0])
            return self._emit(before, aten.mul.Tensor, weight, scale)
        kernel = [1] * (len(shape) - 2)
        if not node.args[6]:  # [out, in / groups, ...]
            return self._emit(
                before,
                aten.mul.Tensor,
                weight,
                self._emit(before, aten.view.default, scale, [shape[0], 1, *kernel]),
            )
        groups: Any = node.args[8]  # transposed: [in, out / groups, ...]
        by_group = self._emit(before, aten.view.default, weight, [groups, shape[0] // groups, *shape[1:]])
        factors = self._emit(before, aten.view.default, scale, [groups, 1, shape[1], *kernel])
        return self._emit(before, aten.view.default, self._emit(before, aten.mul.Tensor, by_group, factors), shape)

    def _emit(self, before: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        call = str((target, map_arg((args, kwargs), _type_of)))
        if call in self._examples:
            node = insert_call(before, target, args, kwargs)
            node.meta["val"] = self._examples[call]
        else:
            node = emit(before, target, *args, **kwargs)
            self._examples[call] = node.meta["val"]
        self._emitted.append(node)
        self._constants.add(node)
        return node

    def _is_constant(self, node: fx.Node) -> bool:
        """Return whether ``node`` will be folded, to finite numbers."""
        if node.target is aten.permute.default:  # its operand is folded
            node = node.all_input_nodes[0]
        if node not in self._constants.nodes or not self._constants.may_be_constant(node):
            return False
        value = self._constants.value(node)
        return value is not None and bool(value.isfinite().all())


def has_scalable(graph: fx.Graph) -> bool:
    """Return whether ``graph`` has operators into whose weights scales fold."""
    return any(node.target in _LINEAR for node in graph.nodes)


def fold_scales(graph: fx.Graph, constants: Constants) -> None:
    """Fold scales and shifts of channels into the weights of convolutions and matrix products, in place.

    ``constants`` belong to ``graph``. They get the operators that compute the weights, and their values.
    """
    _Scales(constants).rewrite(graph)


def _type_of(node: fx.Node) -> tuple[Any, ...]:
    value = value_of(node)
    return value.dtype, tuple(value.shape), value.stride()
