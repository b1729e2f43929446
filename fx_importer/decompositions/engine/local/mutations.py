"""Functionalization of mutations: which nodes have a new value after a node writes to memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch import fx
from torch.fx.node import map_arg

from fx_importer.decompositions.engine.local.operator_properties import alias_source
from fx_importer.decompositions.engine.local.rule_tracing import RetraceRequired
from fx_importer.fx_graph.aliasing import alias_sets, mutated_arguments
from fx_importer.fx_graph.operators import aten

VIEW_SCATTERS = {aten.select.int: aten.select_scatter.default, aten.slice.Tensor: aten.slice_scatter.default}
"""Partial views, and the operators that write a new value into the viewed part; these take the same arguments."""


class Mutations:
    """The mutations of a graph, as new values of the nodes that alias the mutated memory."""

    def __init__(self, nodes: Sequence[fx.Node], graph: fx.Graph, result: Any, writable: Collection[fx.Node]):
        self._writable = writable
        self._groups = alias_sets(graph)
        self._order = {node: position for position, node in enumerate(nodes)}
        self._same: dict[fx.Node, list[fx.Node]] = {}
        """The nodes that are aliases of the whole of one tensor."""
        for node in graph.nodes:
            if (source := alias_source(node)) is not None:
                same = self._same[node] = self._same.setdefault(source, [source])
                same.append(node)
        self._results: set[fx.Node] = set()
        map_arg(result, self._results.add)

    def of(self, node: fx.Node) -> list[list[fx.Node]]:
        """Return the aliases of the tensor that ``node`` mutates, then the aliases of its base, and so on.

        Raises:
            RetraceRequired: if the memory belongs neither to the graph nor to a writable placeholder, or is read later
                through another view.
        """
        chain = [self._same[mutated_arguments(node)[0]]]
        while (view := chain[-1][0]).target in VIEW_SCATTERS:
            whole: Any = view.args[0]
            chain.append(self._same.get(whole, [whole]))
        known = set().union(*chain)
        now = self._order[node]
        for alias in self._groups[node]:
            if alias in known and (alias.op == "call_function" or alias in self._writable):
                continue
            if alias.op != "call_function":
                raise RetraceRequired(f"it writes to the memory of '{alias.name}'")
            if self._order.get(alias, now) < now:
                readers = [f", by {user.name}" for user in alias.users if self._order.get(user, -1) > now]
                if readers or alias in self._results:
                    raise RetraceRequired(
                        f"it writes to memory that is read as '{alias.name}' later{''.join(readers[:1])}"
                    )
        return chain
