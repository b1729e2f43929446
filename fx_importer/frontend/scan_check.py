"""Refusal of ``scan`` that TorchDynamo records with one value in the place of two."""

from __future__ import annotations

from typing import Any

import torch

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedProgramError
from fx_importer.fx_graph.aliasing import graphs_of


def check_scans(module: torch.fx.GraphModule) -> None:
    """Raise `UnsupportedProgramError` listing the scans that start with a tensor which they also read otherwise.

    Torch knows the values of a scan's function by their tensors: where an initial value is repeated, or closed over,
    the graph reads the initial tensor in place of the carried one in each step.
    """
    confused = [
        unsupported_node(node, "an initial value is passed twice, or the function closes over it")
        for graph in graphs_of(module)
        for node in graph.find_nodes(op="call_function", target=torch.ops.higher_order.scan)
        if _repeats_initial(node.args)
    ]
    if confused:
        raise UnsupportedProgramError(
            "TorchDynamo confuses the carried value of a scan with another use of its initial tensor. Start the scan "
            "with a copy (init.clone()):",
            confused,
        )


def _repeats_initial(operands: Any) -> bool:
    _, initial, _, closed_over = operands
    tensors = [operand for operand in initial if isinstance(operand, torch.fx.Node)]
    return len({*tensors}) < len(tensors) or not {*tensors}.isdisjoint(closed_over)
