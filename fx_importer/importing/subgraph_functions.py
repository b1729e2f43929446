"""Private functions for the graphs that a program calls, one per graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import fx

from fx_importer.fx_graph.programs import SAME_IN_ALL_CALLS
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import update_function_type

if TYPE_CHECKING:
    from fx_importer.importing.importer import FxImporter

_LITERAL = "torch.vtensor.literal"


@dataclass(frozen=True)
class Callee:
    """A called function."""

    symbol: ir.Attribute
    passed: Sequence[int]
    """The inputs of the graph that are arguments. The others are literals, equal in all calls."""
    results: Sequence[ir.Type]


class Callees:
    """The functions that a function calls, directly or indirectly."""

    def __init__(self, importer: FxImporter):
        self.functions: list[func_d.FuncOp] = []
        self._importer = importer
        self._known: dict[fx.GraphModule, Callee] = {}

    def of(self, module: fx.GraphModule, name: str, operands: Sequence[ir.Value], build: NodeBuilder) -> Callee:
        """Return the function of ``module``, for a call with ``operands`` that ``build`` is to make.

        When it is first imported, its unsupported nodes are added to ``build.unsupported``.
        """
        if (known := self._known.get(module)) is not None:
            return known
        importer = self._importer
        inputs = module.graph.find_nodes(op="placeholder")
        is_constant = [
            node.meta.get(SAME_IN_ALL_CALLS)
            and (not isinstance(value.owner, ir.Block) and value.owner.name == _LITERAL)
            for node, value in zip(inputs, operands, strict=True)
        ]
        passed = [position for position, is_held in enumerate(is_constant) if not is_held]
        types = [operands[position].type for position in passed]
        with importer.context, importer.locations.unknown, ir.InsertionPoint(importer.module.body):
            function = func_d.FuncOp(f"{build.outlines}.{name}", (types, []), visibility="private")
            block = function.add_entry_block()
        self.functions.append(function)
        function.attributes["no_inline"] = ir.UnitAttr.get(importer.context)
        inner = NodeBuilder(importer, module, block)
        inner.outlines, inner.runtime_asserts = build.outlines, build.runtime_asserts
        inner.asserts_assumptions = build.asserts_assumptions
        arguments = iter(block.arguments)
        values = [
            inner.op(_LITERAL, [value.type], (), {"value": value.owner.attributes["value"]}).result
            if is_held
            else next(arguments)
            for value, is_held in zip(operands, is_constant, strict=True)
        ]
        results = importer.import_subgraph(module.graph, inner, values)
        build.unsupported.extend(inner.unsupported)
        inner.location = importer.locations.unknown
        inner.op("func.return", [], results)
        update_function_type(function)
        symbol = ir.FlatSymbolRefAttr.get(function.name.value, importer.context)
        made = self._known[module] = Callee(symbol, passed, [result.type for result in results])
        return made
