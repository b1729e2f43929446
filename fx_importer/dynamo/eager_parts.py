"""Graphs with operators that the output type does not support: these run in eager PyTorch, between compiled parts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.graph import CodeGen
from torch.utils import _pytree as pytree

from fx_importer.fx_graph.operators import aten

Run = Callable[[Sequence[Any]], list[Any]]
"""Takes the inputs of a graph, and returns its outputs."""

EAGER = "eager PyTorch"
"""The place of nodes that run in eager PyTorch."""

LAUNCH: Any = torch.ops.higher_order.triton_kernel_wrapper_functional
"""The operator that launches a Triton kernel, which writes to copies of its operands."""

_ALLOCATIONS = frozenset(
    getattr(packet, name)
    for packet in (aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided)
    for name in packet.overloads()
)


@dataclass(frozen=True)
class GraphPart:
    """Consecutive nodes of a graph as a graph of their own."""

    module: fx.GraphModule
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]

    @classmethod
    def of(cls, owner: fx.GraphModule, nodes: Sequence[fx.Node]) -> GraphPart:
        """Return ``nodes`` of the graph of ``owner``, in order; results of several values come with their items."""
        inside = set(nodes)
        read = dict.fromkeys(source for node in nodes for source in node.all_input_nodes if source not in inside)
        inputs = [node for node in read if node.op != "get_attr"]
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in inputs:
            copies[node] = graph.placeholder(node.name)
            copies[node].meta = dict(node.meta)
        for node in (*(node for node in read if node.op == "get_attr"), *nodes):
            copies[node] = graph.node_copy(node, copies.__getitem__)
        outputs = [node for node in nodes if not _has_items(node) and not node.users.keys() <= inside]
        graph.output(tuple(copies[node] for node in outputs))
        return cls(fx.GraphModule(owner, graph), tuple(inputs), tuple(outputs))


@dataclass(frozen=True)
class Parts:
    """A graph whose parts run one after the other."""

    placeholders: Sequence[fx.Node]
    parts: Sequence[tuple[GraphPart, Run]]
    returned: Sequence[Any]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        known: dict[fx.Node, Any] = dict(zip(self.placeholders, inputs, strict=True))
        last = {node: position for position, (part, _) in enumerate(self.parts) for node in part.inputs}
        kept = {node for node in self.returned if isinstance(node, fx.Node)}
        for position, (part, run) in enumerate(self.parts):
            results = run([known[node] for node in part.inputs])
            known |= zip(part.outputs, results, strict=True)
            for node in part.inputs:
                if last[node] == position and node not in kept:
                    del known[node]
        return [known[value] if isinstance(value, fx.Node) else value for value in self.returned]


def in_parts(
    module: fx.GraphModule, place_of: Callable[[fx.Node], Hashable], compiled: Callable[[fx.GraphModule], Run]
) -> Run:
    """Return a function that runs the graph of ``module`` in parts, whose operators have one place.

    The parts keep the order of the graph, and so of its random numbers and effects.

    Args:
        module: the graph, which is not modified.
        place_of: the place of a node: `EAGER`, another one, or None for numbers, which are computed with others.
        compiled: compiles a part.
    """
    places = _places(module.graph, place_of)
    groups: list[tuple[Hashable, list[fx.Node]]] = []
    group_of: dict[fx.Node, list[fx.Node]] = {}
    deferred: list[fx.Node] = []
    for node, place in places.items():
        if _is_item(node):
            group_of[node] = group_of[node.all_input_nodes[0]]
            group_of[node].append(node)
            continue
        if place is EAGER and _is_late(node):
            deferred.append(node)
            continue
        before, group = groups[-1] if groups else (EAGER, [])
        if groups and EAGER not in (place, before) and None in (place, before):
            groups[-1] = (before or place, group)
        elif not groups or place != before:
            groups.append((place, group := []))
        if place is EAGER:
            group += deferred
            deferred.clear()
        group.append(node)
        group_of[node] = group
    parts = [(GraphPart.of(module, group), place is EAGER) for place, group in groups]
    runs = [(part, in_eager(part.module) if alone else compiled(part.module)) for part, alone in parts]
    returned: Any = module.graph.output_node().args[0]
    return Parts(module.graph.find_nodes(op="placeholder"), runs, returned)


def _places(graph: fx.Graph, place_of: Callable[[fx.Node], Hashable]) -> dict[fx.Node, Hashable]:
    """Return the place of all nodes that compute; numbers and memory for eager PyTorch alone are made there."""
    places: dict[fx.Node, Hashable] = {}
    for node in reversed(graph.nodes):
        if node.op not in ("placeholder", "get_attr", "output"):
            is_for_eager = _is_late(node) and node.users and all(places.get(user) is EAGER for user in node.users)
            places[node] = EAGER if is_for_eager else place_of(node)
    return dict(reversed(places.items()))


def _is_late(node: fx.Node) -> bool:
    """Return whether ``node`` may be computed later than in the order of the graph: a number, or empty memory."""
    return node.target in _ALLOCATIONS or not (_is_operator(node) or _is_item(node))


def operators_of(module: fx.GraphModule) -> dict[fx.Node, fx.GraphModule]:
    """Return the nodes of ``module`` that compute tensors, and of each a graph with it alone."""
    nodes = (node for node in module.graph.nodes if node.op not in ("placeholder", "get_attr", "output"))
    return {node: GraphPart.of(module, _with_items(node)).module for node in nodes if _is_operator(node)}


def in_eager(module: fx.GraphModule) -> Run:
    """Return a function that runs the graph of ``module`` in eager PyTorch; its code generator is replaced."""
    module.graph.set_codegen(CodeGen())
    _launch_in_place(module.graph)
    module.recompile()

    def run(inputs: Sequence[Any]) -> list[Any]:
        with torch.no_grad():
            return list(module.forward(*inputs))

    return run


def _launch_in_place(graph: fx.Graph) -> None:
    """Let kernels write to memory that ``graph`` has allocated for them alone, instead of to copies of it."""
    for node in graph.find_nodes(op="call_function", target=LAUNCH):
        passed: Any = node.kwargs["kwargs"]
        copied: Any = node.kwargs["tensors_to_clone"]
        fresh = {
            name: passed[name]
            for name in copied
            if passed[name].target in _ALLOCATIONS
            and len(passed[name].users) == 1
            and [*passed.values()].count(passed[name]) == 1
        }
        node.update_kwarg("tensors_to_clone", [name for name in copied if name not in fresh])
        for item in list(node.users):
            if item.args[1] in fresh:
                item.replace_all_uses_with(fresh[item.args[1]])
                graph.erase_node(item)


def _is_operator(node: fx.Node) -> bool:
    """Return whether ``node`` computes tensors; computations of sizes are compiled with their users."""
    return not _is_item(node) and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(node.meta.get("val")))


def _has_items(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), tuple | list) or any(map(_is_item, node.users))


def _is_item(node: fx.Node) -> bool:
    return node.target is operator.getitem


def _with_items(node: fx.Node) -> list[fx.Node]:
    return [node, *filter(_is_item, node.users)]
