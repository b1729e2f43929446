"""Modules to another process and back, each weight once."""

from __future__ import annotations

import re
from pathlib import Path

from fx_importer.mlir.bindings import ir, load_dialects
from fx_importer.mlir.resources import declared, resources_in

_STAND_IN = re.compile(r'dense_resource<"fx-importer/(\d+)/(?:_\d+)*">')
"""A resource without bytes. MLIR adds an underscore and a number to a name that the context has already."""


class Carrier:
    """Writes modules of one context for another process, as bytecode, and reads what comes from there.

    A ``dense_resource`` that both sides have seen goes as its number. Each side numbers them as they first come in what
    it writes and reads, so that both have the same numbers.
    """

    def __init__(self, context: ir.Context):
        load_dialects(context)  # what comes may hold any of them
        self._context = context
        self._seen: list[ir.Attribute] = []
        self._stand_ins: dict[ir.Attribute, ir.Attribute] = {}

    def write(self, module: ir.Module, path: Path) -> None:
        """Write ``module``, which stays as it is, to the file ``path``: it maps there, so the weights are not read."""
        copy = module.operation.clone()
        for op, name, value in resources_in(copy):
            if value in self._stand_ins:
                op.attributes[name] = self._stand_ins[value]
            else:
                self._see(value)
        with path.open("wb") as file:  # a full disk is an exception here, and the end of the process in MLIR
            copy.write_bytecode(file)

    def read(self, path: Path) -> ir.Module:
        """Return the module that the other side wrote to ``path``, which is removed."""
        module = ir.Module.parseFile(str(path), self._context)
        path.unlink()  # what is mapped stays
        for op, name, value in resources_in(module.operation):
            if stand_in := _STAND_IN.match(str(value)):
                op.attributes[name] = self._seen[int(stand_in[1])]
            elif value not in self._stand_ins:
                self._see(value)
        return module

    def _see(self, value: ir.Attribute) -> None:
        self._stand_ins[value] = declared(f"fx-importer/{len(self._seen)}/", value.type)
        self._seen.append(value)
