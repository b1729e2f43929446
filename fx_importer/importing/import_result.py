"""What an import returns: the module, and the records of its functions for the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fx_importer import manifest
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.declarations import StubDefinition


@dataclass(frozen=True)
class ImportedFunction:
    """A function of the module, imported from a program."""

    operation: ir.Operation
    signature: manifest.Function
    state: Mapping[str, manifest.Held]
    """The state that it takes, by its name in the state dict."""
    constants: Mapping[str, manifest.Held]
    """The tensors that it holds, by name."""


@dataclass(frozen=True)
class ImportResult:
    """A module, and the functions that were imported into it together."""

    module: ir.Module
    functions: Mapping[str, ImportedFunction]
    """By name."""
    weights: Mapping[str, manifest.Weight]
    """The weights that the module does not hold, by the names of resources or arguments: also those of functions that
    were imported before."""
    defined: Mapping[str, StubDefinition]
    """What functions compute that stand for operators which rules lower into another output type, by name."""

    @property
    def signatures(self) -> dict[str, manifest.Function]:
        """What the functions take and return, by their names."""
        return {name: function.signature for name, function in self.functions.items()}

    @property
    def state(self) -> dict[str, manifest.Held]:
        """The state that the functions take, by its name in the state dict."""
        return {name: held for function in self.functions.values() for name, held in function.state.items()}

    @property
    def constants(self) -> dict[str, manifest.Held]:
        """The tensors that the functions hold, by name."""
        return {name: held for function in self.functions.values() for name, held in function.constants.items()}
