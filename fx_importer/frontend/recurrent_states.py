"""A check of what torch.export records of recurrent layers."""

from __future__ import annotations

import operator

from torch import fx
from torch.export import ExportedProgram

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError
from fx_importer.fx_graph.operators import aten


def check_recurrent_states(program: ExportedProgram) -> None:
    """Raise `UnsupportedProgramError` listing the LSTMs whose states are read, and recorded with an axis too many.

    torch.export of torch 2.12 records them so, unless this package calls it: `recurrent_states_of_eager`.
    """
    wrong: list[UnsupportedNode] = []
    for node in program.graph.find_nodes(op="call_function", target=aten.lstm.input):
        if "val" not in node.meta:
            continue  # of a graph that another pass made
        given, found = node.args[1][0].meta["val"], node.meta["val"][1]
        if given.dim() != found.dim() and _reads_state(node):
            reason = f"its states have {found.dim()} dimensions in the program, and {given.dim()} in eager PyTorch"
            wrong.append(unsupported_node(node, reason))
    if wrong:
        raise UnsupportedProgramError(
            "torch.export recorded other shapes than eager PyTorch computes, as torch 2.12 does for LSTMs, and later "
            "releases do not; lower the module instead of its program:",
            wrong,
        )


def _reads_state(node: fx.Node) -> bool:
    return any(user.target is not operator.getitem or (user.args[1] != 0 and user.users) for user in node.users)
