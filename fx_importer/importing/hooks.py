"""Hooks of integrators: module preparation, resolution of literals and inputs, and storing of mutated state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec

from fx_importer.mlir.bindings import ir

if TYPE_CHECKING:
    from fx_importer.importing.node_builder import NodeBuilder


@dataclass(frozen=True)
class InputInfo:
    """Description of a program input: a parameter, a buffer, a constant or a user input."""

    program: ExportedProgram
    input_spec: InputSpec
    node: fx.Node
    ir_type: ir.Type
    mutable_producer_node_name: str | None = None
    """The node that produces the new value of a mutated input."""
    store_producer_node: str | None = None
    """The node that produces the new value of a mutated buffer."""


class FxImporterHooks:
    """Base class of hooks, passed as ``hooks=``. Hooks run with the insertion point and the location set."""

    def prepare_module(self, module_op: ir.Operation) -> None:
        """Prepare the module that the importer fills. Called once."""

    def resolve_literal(self, gni: NodeBuilder, literal: Any, info: InputInfo | None) -> ir.Value | None:
        """Return the value of a constant tensor, or None to import it as a literal.

        ``info`` is None if the tensor is not an input of the program.
        """
        return None

    def resolve_input(self, gni: NodeBuilder, value: Any, info: InputInfo) -> ir.Value | None:
        """Return the value of a parameter or a buffer, or None to import it as a literal.

        Called instead of `resolve_literal` if the program is imported as mutable.
        """
        return None

    def store_produced_value(self, gni: NodeBuilder, py_value: Any, produced_ir_value: Any, info: InputInfo) -> None:
        """Store the new value of a mutated buffer. Without this method, the buffer becomes a function argument."""
        raise NotImplementedError
