"""Programs without writes to memory, the only ones that quantization and folding read.

torch.export's training IR is not functional: writes are operators, also through views, and the signature names no
buffer that is written.
"""

from __future__ import annotations

from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from fx_importer.decompositions import decompose
from fx_importer.decompositions.engine.local.operator_properties import functional_form
from fx_importer.fx_graph.aliasing import is_functional, may_share_memory_with
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.overlapping_writes import refuse_overlapping_writes
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_graph.view_writes import with_direct_writes


def functional(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of ``program`` without operators that write to memory.

    New values of buffers, parameters and inputs are results, which the signature names. Operators with rules, such as
    linear layers, stay.

    Raises:
        UnsupportedProgramError: as `refuse_overlapping_writes` and `with_direct_writes` do.
    """
    program = with_rewritten_graphs(program, lambda graph, _: _without_writes(graph))
    if is_functional(program):
        return program
    return decompose(with_direct_writes(refuse_overlapping_writes(program)), {})


def _without_writes(graph: fx.Graph) -> None:
    """Replace in-place operators by functional ones where nothing else reads the tensor, and no view of it exists."""
    for node in list(graph.nodes):
        if node.target in (aten.dropout.default, aten.dropout_.default) and not node.args[2]:  # no dead code to torch
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
            continue
        source = node.args[0] if node.args else None
        pure = functional_form(node.target) if isinstance(node.target, OpOverload) else None
        if pure is not None and isinstance(source, fx.Node):
            fresh = isinstance(source.target, OpOverload) and not may_share_memory_with(source)
            if fresh and len(source.users) == 1:
                node.target = pure
