"""Result of an import: the module and its manifest, which the compilation completes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fx_importer.manifest import Function, Held, Manifest, Weight
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.declarations import StubDefinition
from fx_importer.output_types import OutputType


@dataclass(frozen=True)
class ImportedFunction:
    """A function of the module, imported from a program."""

    operation: ir.Operation
    signature: Function
    state: Mapping[str, Held]
    """State arguments, by name in the state dict."""
    constants: Mapping[str, Held]
    """Constant tensors, by name."""


@dataclass(frozen=True)
class ImportResult:
    """A module, and the manifest of the functions that one import added to it."""

    module: ir.Module
    manifest: Manifest
    """Its weights are those outside the module, including those of functions that were imported before."""
    defined: Mapping[str, StubDefinition]
    """Definitions of the functions for operators that rules lower into another output type, by name."""

    @classmethod
    def of(
        cls,
        module: ir.Module,
        functions: Mapping[str, ImportedFunction],
        weights: Mapping[str, Weight],
        defined: Mapping[str, StubDefinition],
    ) -> ImportResult:
        """Return the result of an import of ``functions``, by name."""
        manifest = Manifest(
            OutputType.RAW.value,
            {name: function.signature for name, function in functions.items()},
            {name: tensor for function in functions.values() for name, tensor in function.state.items()},
            {name: constant for function in functions.values() for name, constant in function.constants.items()},
            weights=weights,
        )
        return cls(module, manifest, defined)
