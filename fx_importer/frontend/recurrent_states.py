"""Recurrent layers as torch traces them: shapes of states, casts, and the operators that compute them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import fx
from torch._decomp import decompositions
from torch.export import ExportedProgram

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError
from fx_importer.frontend.torch_patches import LSTM_LAYER, LSTM_SELECTION, patched
from fx_importer.fx_graph.operators import aten


def recurrent_states_of_eager() -> AbstractContextManager[None]:
    """Make torch trace the states of LSTMs with the shapes that eager PyTorch computes."""
    return patched(
        {LSTM_LAYER: _layer_with_shapes_of_states(decompositions.one_layer_lstm)} if _squeezes_axis_1() else {}
    )


def lstm_without_onednn() -> AbstractContextManager[None]:
    """Make torch decompose LSTMs to matmuls instead of an operator of oneDNN."""
    return patched({LSTM_SELECTION: lambda *_: decompositions.one_layer_lstm})


@functools.cache
def _squeezes_axis_1() -> bool:
    state = torch.zeros(2, 1)  # of two sequences
    weights = [torch.zeros(4, 1), torch.zeros(4, 1)]
    _, (hidden, _) = decompositions.one_layer_lstm(torch.zeros(1, 2, 1), (state, state), weights, False)
    return hidden.shape != state.shape


def _layer_with_shapes_of_states(layer: Any) -> Any:
    def in_shape(inp: Any, hidden: Any, *args: Any, **kwargs: Any) -> Any:
        out, states = layer(inp, hidden, *args, **kwargs)
        return out, tuple(new.reshape(old.shape) for new, old in zip(states, hidden, strict=True))

    return in_shape


def check_recurrent_states(program: ExportedProgram) -> None:
    """Raise `UnsupportedProgramError` listing the LSTMs whose states are read, and recorded with an axis too many.

    torch.export of torch 2.12 records them so, unless this package calls it: `recurrent_states_of_eager`.
    """
    wrong: list[UnsupportedNode] = []
    for node in program.graph.find_nodes(op="call_function", target=aten.lstm.input):
        if "val" not in node.meta:
            continue  # of a graph that another pass made
        initial, recorded = node.args[1][0].meta["val"], node.meta["val"][1]
        if initial.dim() != recorded.dim() and _reads_state(node):
            reason = f"its states have {recorded.dim()} dimensions in the program, and {initial.dim()} in eager PyTorch"
            wrong.append(unsupported_node(node, reason))
    if wrong:
        raise UnsupportedProgramError(
            "torch.export recorded other shapes than eager PyTorch computes, as torch 2.12 does for LSTMs, and later "
            "releases do not; lower the module instead of its program:",
            wrong,
        )


def check_recurrent_casts(program: ExportedProgram) -> None:
    """Raise `UnsupportedProgramError` listing the recurrent layers in float32 inside of `torch.autocast`.

    Torch decomposes them below autocast, so that the casts of their matmuls would be lost.
    """
    ambient = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    lost = [
        unsupported_node(node, f"eager PyTorch computes its matmuls in {dtype}")
        for node, dtype in _in_autocast(program.graph_module, ambient)
        if node.target in _LAYERS and node.args[0].meta["val"].dtype is torch.float32  # type: ignore[union-attr]
    ]
    if lost:
        raise UnsupportedProgramError(
            "torch.export loses the casts of torch.autocast in recurrent layers. Convert the layer and its inputs "
            "(layer.bfloat16()), or call it in torch.autocast('cpu', enabled=False):",
            lost,
        )


_LAYERS = (
    *(aten.lstm.input, aten.lstm.data, aten.gru.input, aten.gru.data),
    *(aten.rnn_tanh.input, aten.rnn_tanh.data, aten.rnn_relu.input, aten.rnn_relu.data),
)


def _in_autocast(module: fx.GraphModule, dtype: torch.dtype | None) -> Iterator[tuple[fx.Node, torch.dtype]]:
    """Yield the nodes that autocast applies to, each with the dtype that it casts to."""
    for node in module.graph.nodes:
        if node.target is torch.ops.higher_order.wrap_with_autocast:
            _, inner, enabled, _, body, *_ = node.args
            yield from _in_autocast(getattr(module, str(body.target)), inner if enabled else None)
        elif dtype is not None:
            yield node, dtype


def _reads_state(node: fx.Node) -> bool:
    return any(user.target is not operator.getitem or (user.args[1] != 0 and user.users) for user in node.users)
