"""Traversal of a graph in order, binding the values that handlers return; locations of nodes."""

from __future__ import annotations

import torch
from torch import fx

from fx_importer.diagnostics.mlir_diagnostics import read_frames, unsupported_node
from fx_importer.diagnostics.progress import Countable, counted
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError, not_imported
from fx_importer.fx_graph.programs import as_node_dtype, module_name
from fx_importer.importing.handlers import import_call
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
            types = [build.types.of(item) for item in example] if several else [build.type_of(node)]
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


class Locations:
    """Cache of the locations of one context, one per distinct (module, call stack)."""

    def __init__(self, context: ir.Context):
        self.unknown = ir.Location.unknown(context)
        self._context = context
        self._known: dict[tuple[str | None, str | None], ir.Location] = {(None, None): self.unknown}

    def of(self, node: fx.Node) -> ir.Location:
        """Return ``"module.name"(callsite(innermost frame at … at outermost frame))`` as far as the node records it."""
        key = (module_name(node), node.meta.get("stack_trace"))
        location = self._known.get(key)
        if location is None:
            location = self._known[key] = self._make(*key)
        return location

    def named(self, name: str) -> ir.Location:
        """Return a name location, for an argument or a weight."""
        return ir.Location.name(name, context=self._context)

    def _make(self, module: str | None, trace: str | None) -> ir.Location:
        frames = [ir.Location.file(file, line, 0, context=self._context) for file, line in reversed(read_frames(trace))]
        stack = ir.Location.callsite(frames[0], frames[1:], context=self._context) if frames[1:] else None
        inner = stack or (frames[0] if frames else None)
        return ir.Location.name(module, inner, context=self._context) if module else inner or self.unknown
