"""Graphs with operators that the output type does not support: these run in eager PyTorch, between compiled parts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.graph import CodeGen
from torch.utils import _pytree as pytree

Run = Callable[[Sequence[Any]], list[Any]]
"""Takes the inputs of a graph, and returns its outputs."""


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
    module: fx.GraphModule, is_refused: Callable[[fx.GraphModule], bool], compiled: Callable[[fx.GraphModule], Run]
) -> tuple[Run, list[fx.Node]]:
    """Return a function that runs the graph of ``module`` in compiled and eager parts, and the nodes in the latter.

    The parts keep the order of the graph, and so of its random numbers and effects.

    Args:
        module: the graph, which is not modified.
        is_refused: whether a graph of a single operator cannot be compiled.
        compiled: compiles a part. If all operators are accepted, the graph as a whole runs in eager PyTorch.
    """
    nodes = [node for node in module.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    refused = [
        node for node in nodes if _is_operator(node) and is_refused(GraphPart.of(module, _with_items(node)).module)
    ]
    groups: list[list[fx.Node]] = []
    group_of: dict[fx.Node, list[fx.Node]] = {}
    eager = set(refused or nodes)
    for node in nodes:
        if _is_item(node):
            group_of[node] = group_of[node.all_input_nodes[0]]
            group_of[node].append(node)
            continue
        if not groups or (groups[-1][0] in eager) != (node in eager):
            groups.append([])
        groups[-1].append(node)
        group_of[node] = groups[-1]
    parts = [(GraphPart.of(module, group), group[0] in eager) for group in groups]
    runs = [(part, in_eager(part.module) if alone else compiled(part.module)) for part, alone in parts]
    returned: Any = module.graph.output_node().args[0]
    return Parts(module.graph.find_nodes(op="placeholder"), runs, returned), refused


def in_eager(module: fx.GraphModule) -> Run:
    """Return a function that runs the graph of ``module`` in eager PyTorch; its code generator is replaced."""
    module.graph.set_codegen(CodeGen())
    module.recompile()

    def run(inputs: Sequence[Any]) -> list[Any]:
        with torch.no_grad():
            return list(module.forward(*inputs))

    return run


def _is_operator(node: fx.Node) -> bool:
    """Return whether ``node`` computes tensors; computations of sizes are compiled with their users."""
    return not _is_item(node) and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(node.meta.get("val")))


def _has_items(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), tuple | list) or any(map(_is_item, node.users))


def _is_item(node: fx.Node) -> bool:
    return node.target is operator.getitem


def _with_items(node: fx.Node) -> list[fx.Node]:
    return [node, *filter(_is_item, node.users)]
