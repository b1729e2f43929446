"""Traversal of a graph in order, binding the values that handlers return."""

from __future__ import annotations

import torch
from torch import fx

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.diagnostics.progress import Countable, counted
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError, not_imported
from fx_importer.fx_graph.programs import as_node_dtype
from fx_importer.importing.handlers import import_call
from fx_importer.importing.locations import Locations
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.symbolic_shapes import Symbols
from fx_importer.importing.types import UnknownDtype
from fx_importer.mlir.bindings import ir


class Walker:
    """Importer of the nodes of one graph. Collects all unsupported nodes, so that one error lists them."""

    def __init__(self, build: NodeBuilder, locations: Locations, symbols: Symbols | None = None):
        self._build = build
        self._locations = locations
        self._symbols = symbols
        self.unsupported_nodes: list[UnsupportedNode] = []
        self.missing: set[fx.Node] = set()
        """Unsupported nodes without a placeholder value, and nodes that depend on them."""

    def bind(self, node: fx.Node, value: ir.Value) -> None:
        """Bind a node that no handler imports, such as a placeholder."""
        self._build.environment.bind(node, value)
        if self._symbols is not None:
            self._symbols.bind(node, value)

    def walk(self, nodes: Countable[fx.Node]) -> None:
        """Import the ``call_function`` and ``get_attr`` nodes among ``nodes``."""
        environment, build, locations = self._build.environment, self._build, self._locations
        for node in counted(nodes, "nodes"):
            if node.op in ("placeholder", "output"):
                continue
            build.location = locations.of(node)
            try:
                if self.missing and not self.missing.isdisjoint(node.all_input_nodes):
                    self._stand_in(node)  # only depends on an unsupported node
                elif node.op == "call_function":
                    self._call(node)
                elif node.op == "get_attr":
                    self._get_attr(node)
                else:
                    raise UnsupportedNodeError(
                        f"a {node.op} node cannot be imported: trace the module down to operators"
                    )
            except UnsupportedNodeError as reason:
                self.mark_unsupported(node, str(reason))
            self.unsupported_nodes.extend(build.unsupported)
            build.unsupported.clear()
            if self._symbols is not None and node in environment:
                self._symbols.bind(node, environment.binding(node))

    def _get_attr(self, node: fx.Node) -> None:
        attribute = self._build.attribute_of_owner(str(node.target))
        if isinstance(attribute, torch.Tensor):
            attribute = as_node_dtype(node, attribute)
            self._build.environment.bind(node, self._build.literal(attribute, str(node.target)))
        elif not isinstance(
            attribute, fx.GraphModule
        ):  # subgraphs are imported by the handler of their higher-order op
            raise UnsupportedNodeError(f"an attribute of type {type(attribute).__name__} cannot be imported")

    def _call(self, node: fx.Node) -> None:
        value = import_call(node, self._build)
        if self._build.unsupported:  # unsupported nodes of its subgraphs
            self._stand_in(node)
        else:
            self._build.environment.bind(node, value)

    def _stand_in(self, node: fx.Node) -> None:
        """Bind the unsupported ``node`` to a placeholder value of its type, so that its users can be checked too.

        The function is discarded when the import fails.
        """
        build, name = self._build, ir.StringAttr.get("missing", context=self._build.fx_importer.context)
        try:
            example = build.example(node)
            several = isinstance(example, list | tuple)
            types = [build.types.of(each) for each in example] if several else [build.type_of(node)]
        except (UnsupportedNodeError, TypeError, UnknownDtype):
            self.missing.add(node)
            return
        results = list(build.op("torch.operator", types, [], {"name": name}).results)
        build.environment.bind(node, results if several else results[0])

    def mark_unsupported(self, node: fx.Node, reason: str) -> None:
        """Record that ``node`` cannot be imported."""
        self.unsupported_nodes.append(unsupported_node(node, reason))
        self._stand_in(node)

    def finish(self) -> None:
        """Raise `UnsupportedProgramError` if there are unsupported nodes."""
        if self.unsupported_nodes:
            raise UnsupportedProgramError(not_imported(len(self.unsupported_nodes)), self.unsupported_nodes)
