"""The transfer of modules to another process and back, which sends each weight once."""

from __future__ import annotations

from pathlib import Path

from fx_importer.mlir.bindings import ir, load_dialects, write_bytecode
from fx_importer.mlir.elided_weights import HandleScope, WeightHandle
from fx_importer.mlir.resources import replace_constants, resources_in


class ModuleTransfer:
    """Writes modules of one context for another process, as bytecode, and reads those that come from there.

    A weight that both processes have goes as a handle. Each process numbers the weights in the order in which it first
    writes or reads them, so that both have the same numbers.
    """

    def __init__(self, context: ir.Context):
        load_dialects(context)  # a module from the other process may hold any of them
        self._context = context
        self._weights: list[ir.Attribute] = []
        self._handles: dict[ir.Attribute, ir.Attribute] = {}

    def write(self, module: ir.Module, path: Path) -> None:
        """Write ``module``, which does not change, to the file ``path``, which the other process maps into memory."""
        copy = module.operation.clone()
        replace_constants(resources_in(copy), self._sent)
        write_bytecode(copy, path)

    def read(self, path: Path) -> ir.Module:
        """Return the module that the other process wrote to ``path``, and remove the file."""
        module = ir.Module.parseFile(str(path), self._context)
        path.unlink()  # the mapping stays
        replace_constants(resources_in(module.operation), self._received)
        return module

    def _sent(self, value: ir.Attribute) -> ir.Attribute | None:
        if value in self._handles:
            return self._handles[value]
        self._number(value)
        return None

    def _received(self, value: ir.Attribute) -> ir.Attribute | None:
        if (handle := WeightHandle.of(value, HandleScope.TRANSFER)) is not None:
            return self._weights[handle.number]
        if value not in self._handles:
            self._number(value)
        return None

    def _number(self, value: ir.Attribute) -> None:
        self._handles[value] = WeightHandle(HandleScope.TRANSFER, len(self._weights)).attribute(value.type)
        self._weights.append(value)
