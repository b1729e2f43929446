"""Outlining of repeated layers: equal submodules become calls of one subgraph, which is imported as a function."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.programs import SAME_IN_ALL_CALLS, graph_module, with_graph
from fx_importer.fx_passes.fx_pass import FxPass
from fx_importer.fx_passes.repeated_layers import Layer, repeated_layers

INVOKE = torch.ops.higher_order.invoke_subgraph


def outline_layers(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with repeated submodules replaced by calls of one subgraph.

    The calls are ``invoke_subgraph(graph, name, *inputs)``. The given program is not changed; its graph must be
    functional and in normal form.
    """
    outlined = _outlined(program.graph_module)
    if outlined is program.graph_module:
        return program
    return with_graph(program, outlined.graph, program.graph_signature, root=outlined)


def _outlined(module: fx.GraphModule) -> fx.GraphModule:
    groups = repeated_layers(module.graph, module)
    if not groups:
        return module
    copy = _Copy(module)
    first: dict[fx.Node, Callable[[], None]] = {}
    inside: set[fx.Node] = set()
    for group in groups:
        results = _results(group)
        name = copy.add(_function(group, results, module), group[0].module)
        for layer in group:
            inside.update(layer.nodes, layer.moved)
            last = layer.nodes[-1]
            first[last] = lambda layer=layer, name=name, results=results: copy.call(layer, name, results)
    for node in module.graph.nodes:
        if node in first:
            first[node]()
        elif node not in inside and not (node.op == "get_attr" and inside.issuperset(node.users)):
            copy.node(node)
    return copy.module()


def _results(group: Sequence[Layer]) -> list[int]:
    """Return the positions in the layer of the nodes that are used outside of any layer of ``group``."""
    results: set[int] = set()
    for layer in group:
        own = set(layer.nodes)
        results |= {number for number, node in enumerate(layer.nodes) if not own.issuperset(node.users)}
    return sorted(results)


def _function(group: Sequence[Layer], results: Sequence[int], owner: fx.GraphModule) -> fx.GraphModule:
    """Return the subgraph of the layers in ``group``: it takes their inputs and returns ``results``.

    Repeated layers in it are outlined too.
    """
    copy, layer = _Copy(owner), group[0]
    for inputs in zip(*(layer.inputs for layer in group), strict=True):
        copy.input(inputs[0], always=len(set(inputs)) == 1)
    for node in layer.nodes:
        copy.node(node)
    returned = tuple(copy.values[layer.nodes[result]] for result in results)
    copy.graph.output(returned).meta["val"] = tuple(map(value_of, returned))
    return _outlined(copy.module())


class _Copy:
    """A graph under construction, with nodes copied from another."""

    def __init__(self, owner: fx.GraphModule):
        self.graph = fx.Graph()
        self.values: dict[fx.Node, fx.Node] = {}
        self._owner = owner
        self._added: dict[str, fx.GraphModule] = {}
        self._names: Counter[str] = Counter()

    def add(self, function: fx.GraphModule, name: str) -> str:
        """Add ``function`` as a submodule and return its unique name."""
        self._names[name] += 1
        if (count := self._names[name]) > 1:
            name = f"{name}_{count}"
        self._added[name] = function
        return name

    def input(self, node: fx.Node, *, always: bool) -> None:
        """Add an input for ``node``; ``always`` if all calls pass the same node."""
        made = self.values[node] = self.graph.placeholder(node.name)
        made.meta |= {"val": value_of(node), SAME_IN_ALL_CALLS: always}

    def node(self, node: fx.Node) -> None:
        for operand in node.all_input_nodes:
            if operand not in self.values:  # a ``get_attr`` outside of the layer
                self.node(operand)
        made = self.values[node] = self.graph.node_copy(node, self.values.__getitem__)
        made.name = node.name  # the graph signature refers to names

    def call(self, layer: Layer, name: str, results: Sequence[int]) -> None:
        """Call subgraph ``name`` for ``layer``, followed by the nodes that must come after it."""
        function = self.graph.get_attr(name)
        operands = (self.values[node] for node in layer.inputs)
        made = self.graph.call_function(INVOKE, (function, name, *operands))
        nodes = [layer.nodes[result] for result in results]
        made.meta |= {"val": tuple(map(value_of, nodes)), **_origin(layer)}
        for number, node in enumerate(nodes):
            item = self.values[node] = self.graph.call_function(operator.getitem, (made, number))
            item.meta |= node.meta
        for node in layer.moved:
            self.node(node)

    def module(self) -> fx.GraphModule:
        return graph_module(self._owner, self.graph, self._added)


def _origin(layer: Layer) -> dict[str, Any]:
    """Return the metadata of a call: the module stack that all nodes of the layer share."""
    stacks = [node.meta["nn_module_stack"] for node in layer.nodes]
    common = {key: value for key, value in stacks[0].items() if all(key in stack for stack in stacks)}
    return {"nn_module_stack": common}


OUTLINE_LAYERS = FxPass(
    "outline-layers",
    lambda program, _: outline_layers(program),
    lambda context: context.options.importing.outline_layers,
)
