"""Carries an exported program to normal form."""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.programs import with_rewritten_graphs

aten = torch.ops.aten

_WITHOUT_RESULT = frozenset(
    (
        aten._assert_scalar.default,
        aten._assert_tensor_metadata.default,
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
        aten._assert_async.msg,
    )
)


def canonicalize(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` in normal form; the given program is left alone, the weights are shared."""
    return with_rewritten_graphs(program, _canonicalize)


def _canonicalize(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if node.target in _WITHOUT_RESULT:
            graph.erase_node(node)
    graph.eliminate_dead_code()
