"""The symbol table of rules that take a node, as in torch-mlir: values of nodes by result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx

from fx_importer.importing import NodeBuilder
from fx_importer.importing.handlers.schema_operators import import_overload
from fx_importer.lowerings.target_emitter import TargetEmitter
from fx_importer.mlir.bindings import ir


class SymbolTable(Mapping[tuple[Any, int], ir.Value]):
    """Values of builtin tensor types by node, or its name, and index of the result: ``table[str(node), 0]``."""

    def __init__(self, node: fx.Node, build: NodeBuilder, emit: TargetEmitter):
        self.build = build
        self.emit = emit
        self._nodes = {
            placeholder.name: placeholder for placeholder in node.graph.nodes if placeholder in build.environment
        }

    def __getitem__(self, key: tuple[Any, int]) -> ir.Value:
        node, index = key
        binding = self.build.environment.binding(self._nodes[str(node)])
        values = [binding] if isinstance(binding, ir.Value) else list(binding or ())
        if not 0 <= index < len(values) or not isinstance(value := values[index], ir.Value):
            raise KeyError(key)
        return self.emit.torch.to_builtin(value)

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        for name, node in self._nodes.items():
            binding = self.build.environment.binding(node)
            yield from ((name, i) for i in range(1 if isinstance(binding, ir.Value) else len(binding or ())))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def built_in(self, node: fx.Node) -> Any:
        """Return the results of ``node`` by the built-in lowering."""
        result = import_overload(node, self.build)
        return (
            self.emit.torch.to_builtin(result)
            if isinstance(result, ir.Value)
            else [self.emit.torch.to_builtin(value) for value in result]
        )
