"""Where an integrator steps in: modules to prepare, literals and inputs to resolve, mutated state to store."""

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
    """What is known of an input of the program: a parameter, a buffer, a constant or a user's input."""

    program: ExportedProgram
    input_spec: InputSpec
    node: fx.Node
    ir_type: ir.Type
    mutable_producer_node_name: str | None = None
    """For an input that is mutated: the node that produces its new value."""
    store_producer_node: str | None = None
    """For a buffer that is mutated: the node that produces its new value."""


class FxImporterHooks:
    """Subclass this and pass it as ``hooks=``. Hooks run with the insertion point and the location set."""

    def prepare_module(self, module_op: ir.Operation) -> None:
        """Called once with the module that the importer fills."""

    def resolve_literal(self, gni: NodeBuilder, literal: Any, info: InputInfo | None) -> ir.Value | None:
        """Return the value that stands for a constant tensor; None leaves it to the importer, which makes a literal.

        ``info`` is None where the tensor is not an input of the program.
        """
        return None

    def resolve_input(self, gni: NodeBuilder, value: Any, info: InputInfo) -> ir.Value | None:
        """Return the value that stands for a parameter or a buffer; None makes it a literal.

        Asked instead of `resolve_literal` where the program is imported as a mutable one.
        """
        return None

    def store_produced_value(self, gni: NodeBuilder, py_value: Any, produced_ir_value: Any, info: InputInfo) -> None:
        """Store the new value of a mutated buffer. A subclass without this method gets the buffer as an argument."""
        raise NotImplementedError
