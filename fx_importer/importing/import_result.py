"""Result of an import: the module, and the records of its functions for the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fx_importer import manifest
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.declarations import StubDefinition


@dataclass(frozen=True)
class ImportedFunction:
    """A function of the module, imported from a program."""

    operation: ir.Operation
    signature: manifest.Function
    state: Mapping[str, manifest.Held]
    """State arguments, by name in the state dict."""
    constants: Mapping[str, manifest.Held]
    """Constant tensors, by name."""


@dataclass(frozen=True)
class ImportResult:
    """A module and the functions that one import added to it."""

    module: ir.Module
    functions: Mapping[str, ImportedFunction]
    """By name."""
    weights: Mapping[str, manifest.Weight]
    """Weights outside the module, by the names of resources or arguments, including those of functions that
    were imported before."""
    defined: Mapping[str, StubDefinition]
    """Definitions of the functions for operators that rules lower into another output type, by name."""
    mesh: Mapping[str, int] = field(default_factory=dict)
    """The axes of the mesh that the functions run on, and their sizes."""
    process_groups: Mapping[str, manifest.ProcessGroup] = field(default_factory=dict)
    """Process groups that collectives use, by name."""

    @property
    def signatures(self) -> dict[str, manifest.Function]:
        """Signatures of the functions, by name."""
        return {name: function.signature for name, function in self.functions.items()}

    @property
    def state(self) -> dict[str, manifest.Held]:
        """State arguments of the functions, by name in the state dict."""
        return {name: held for function in self.functions.values() for name, held in function.state.items()}

    @property
    def constants(self) -> dict[str, manifest.Held]:
        """Constant tensors of the functions, by name."""
        return {name: held for function in self.functions.values() for name, held in function.constants.items()}
