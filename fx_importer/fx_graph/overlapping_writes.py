"""Writes to tensors whose elements share memory."""

from __future__ import annotations

import torch
from torch import SymInt, Tensor, fx
from torch.export import ExportedProgram

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedProgramError
from fx_importer.fx_graph.aliasing import graphs_of, mutated_arguments
from fx_importer.fx_graph.emission import value_of


def refuse_overlapping_writes(program: ExportedProgram) -> ExportedProgram:
    """Refuse writes to expanded tensors. Eager allows some, but functionalization changes their results.

    Raises:
        UnsupportedProgramError: naming the operators that write.
    """
    nodes = [node for graph in graphs_of(program.graph_module) for node in graph.nodes if _is_write(node)]
    writes = [
        (node, argument) for node in nodes for argument in mutated_arguments(node) if _is_expanded(value_of(argument))
    ]
    if writes:
        raise UnsupportedProgramError(
            "the program writes to tensors whose elements share memory. Write to the tensor before it is expanded, or "
            "to a clone():",
            [
                unsupported_node(node, f"'{argument.name}' has the strides {tuple(value_of(argument).stride())}")
                for node, argument in writes
            ],
        )
    return program


def _is_write(node: fx.Node) -> bool:
    return torch.Tag.inplace_view not in getattr(node.target, "tags", ())


def _is_expanded(value: object) -> bool:
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return False
    return any(
        not isinstance(stride, SymInt) and stride == 0 and (isinstance(size, SymInt) or size > 1)
        for size, stride in zip(value.shape, value.stride(), strict=True)
    )
