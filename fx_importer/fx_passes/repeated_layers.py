"""Detection of repeated submodules in a graph: transformer layers, blocks, experts."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx

from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_passes.node_rewriting import is_in_place

_MIN_OPERATIONS = 16
"""Smaller submodules are not worth a function."""

_OPERAND = object()


@dataclass(frozen=True)
class Layer:
    """A call of a submodule, as part of a graph."""

    module: str
    """The class of the submodule, without its package."""
    nodes: Sequence[fx.Node]
    """Its nodes, in graph order."""
    inputs: Sequence[fx.Node]
    """Nodes from elsewhere that it uses, each once, in order of use."""
    moved: Sequence[fx.Node]
    """Interleaved nodes that depend on it, and must be moved after it."""


def repeated_layers(graph: fx.Graph, owner: torch.nn.Module) -> list[list[Layer]]:
    """Return groups of two or more layers of equal structure, preferring larger layers. Layers do not overlap."""
    labels = _Labels(owner)
    order = {node: position for position, node in enumerate(graph.nodes)}
    covered = bytearray(len(order))
    groups: list[list[Layer]] = []
    for layers in _groups_by_structure(_calls(graph), labels):
        group: list[Layer] = []
        places: list[slice] = []
        for layer in layers:
            span = slice(order[layer.nodes[0]], order[layer.nodes[-1]] + 1)
            if any(covered[span]) or (places and span.start < places[-1].stop):
                continue
            if (moved := _after(layer)) is not None:
                group.append(Layer(layer.module, layer.nodes, layer.inputs, moved))
                places.append(span)
        if len(group) > 1:
            groups.append(group)
            for span in places:
                covered[span] = b"\1" * (span.stop - span.start)
    return groups


def _calls(graph: fx.Graph) -> Iterator[tuple[str, list[fx.Node]]]:
    """Yield class name and traced nodes of each submodule call."""
    calls: dict[str, tuple[str, list[fx.Node]]] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            for call, (_, module) in node.meta.get("nn_module_stack", {}).items():
                name = module if isinstance(module, str) else module.__name__
                calls.setdefault(call, (name.rpartition(".")[2], []))[1].append(node)
    for name, nodes in calls.values():
        if len(nodes) >= _MIN_OPERATIONS and all(map(_can_move, nodes)):
            yield name, nodes


def _can_move(node: fx.Node) -> bool:
    """Return whether ``node`` may be in a function: it has no ordered side effects."""
    return node.target is not torch.ops.higher_order.with_effects and not is_in_place(node)


def _groups_by_structure(calls: Iterable[tuple[str, list[fx.Node]]], labels: _Labels) -> Iterator[list[Layer]]:
    """Yield groups of layers of equal structure, those with the most nodes first."""
    by_size: dict[Hashable, list[tuple[str, list[fx.Node]]]] = defaultdict(list)
    for name, nodes in calls:
        by_size[len(nodes), labels.of(nodes[0]), labels.of(nodes[-1])].append((name, nodes))
    groups: dict[Hashable, list[Layer]] = defaultdict(list)
    for same in by_size.values():
        for name, nodes in same if len(same) > 1 else ():
            key, inputs = labels.structure(nodes)
            if all(map(_is_passed, inputs)):
                groups[key].append(Layer(name, nodes, inputs, ()))
    yield from sorted(groups.values(), key=lambda group: -len(group[0].nodes))


def _is_passed(node: fx.Node) -> bool:
    """Return whether the value of ``node`` can be a function argument."""
    return isinstance(value_of(node), Tensor | SymInt | SymFloat | SymBool)


def _after(layer: Layer) -> list[fx.Node] | None:
    """Return the interleaved nodes that depend on ``layer``; None if it depends on one of them in turn."""
    own = set(layer.nodes)
    dependent: dict[fx.Node, None] = {}
    node = layer.nodes[0]
    while node is not layer.nodes[-1]:
        node = node.next
        depends = not dependent.keys().isdisjoint(node.all_input_nodes)
        if node in own:
            if depends:
                return None
        elif depends or not own.isdisjoint(node.all_input_nodes):
            dependent[node] = None
    return list(dependent)


class _Labels:
    """Integer labels of nodes, equal for equal operators with equal constant arguments and types."""

    def __init__(self, owner: torch.nn.Module):
        self._owner = owner
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[fx.Node, tuple[int, list[fx.Node]]] = {}

    def of(self, node: fx.Node) -> int:
        return self._label(node)[0]

    def structure(self, nodes: Iterable[fx.Node]) -> tuple[Hashable, list[fx.Node]]:
        """Return a key that is equal for graphs of equal structure, and the nodes from elsewhere that they use."""
        own: dict[fx.Node, int] = {}
        outer: dict[fx.Node, int] = {}
        key: list[Hashable] = []
        for node in nodes:
            label, operands = self._label(node)
            key.append(label)
            key += [
                own[operand] if operand in own else -1 - outer.setdefault(operand, len(outer)) for operand in operands
            ]
            own[node] = len(own)
        key += [self._number(_type(value_of(operand))) for operand in outer]
        return tuple(key), list(outer)

    def _label(self, node: fx.Node) -> tuple[int, list[fx.Node]]:
        label = self._known.get(node)
        if label is None:
            operands: list[fx.Node] = []
            arguments = self._comparable(node.args, operands), self._comparable(node.kwargs, operands)
            number = self._number((node.target, *arguments, _type(value_of(node))))
            label = self._known[node] = number, operands
        return label

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _comparable(self, argument: Any, operands: list[fx.Node]) -> Hashable:
        """Return ``argument`` as a hashable value; nodes in it are appended to ``operands``."""
        if isinstance(argument, fx.Node):
            if argument.op == "get_attr":
                return self._attribute(str(argument.target))
            operands.append(argument)
            return _OPERAND
        if isinstance(argument, tuple | list):
            return type(argument), *(self._comparable(item, operands) for item in argument)
        if isinstance(argument, Mapping):
            return tuple((key, self._comparable(item, operands)) for key, item in argument.items())
        if isinstance(argument, slice):
            return self._comparable((argument.start, argument.stop, argument.step), operands)
        if isinstance(argument, float | complex):
            return repr(argument)  # zero is not minus zero
        return type(argument), argument

    def _attribute(self, target: str) -> Hashable:
        """Return a structural key for the graph of a higher-order operator; for other attributes, the name."""
        module = operator.attrgetter(target)(self._owner)
        if not isinstance(module, fx.GraphModule):
            return target
        nodes = list(module.graph.nodes)
        within = _Labels(module)
        within._numbers = self._numbers
        inputs = tuple(_type(value_of(node)) for node in nodes if node.op == "placeholder")
        own = {node: position for position, node in enumerate(nodes)}
        key: list[Hashable] = [inputs]
        for node in nodes:
            if node.op not in ("placeholder", "get_attr"):
                label, operands = within._label(node)
                key += [label, *(own[operand] for operand in operands)]
        return tuple(key)


def _type(value: Any) -> Hashable:
    """Return a hashable key of the type of ``value``."""
    if isinstance(value, Tensor):
        return value.dtype, value.layout, *(size if isinstance(size, int) else size.node.expr for size in value.shape)
    if isinstance(value, tuple | list):
        return type(value), *map(_type, value)
    return type(value)
