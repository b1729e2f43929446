"""Recurrent layers as products and elementwise functions of each step, which have integer forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.normalization.inlining import inline

State = tuple[Tensor, ...]
Parameters = Sequence[Tensor]
Cell = Callable[[Tensor, State, Parameters], State]
"""Returns the state after a step; its first tensor is the result."""
STEP = "step_of_recurrent_layer"
"""Key in ``meta`` of an operator of a step: its value identifies the same operator in all steps of the layer."""


def unroll(node: fx.Node) -> None:
    """Replace a recurrent layer of static sizes, in evaluation, by its steps, whose values `STEP` names."""
    *_, dropout, training, _, _ = node.args
    static = all(isinstance(size, int) for size in node.all_input_nodes[0].meta["val"].shape)
    if static and not (dropout and training):
        graph, before = node.graph, set(node.graph.nodes)
        inline(node, RECURRENT[node.target])
        _name_steps([added for added in graph.nodes if added not in before])


def unroll_cell(node: fx.Node) -> None:
    """Replace a cell by products and elementwise functions, whose values `STEP` names, alike in all calls of a loop."""
    graph, before = node.graph, set(node.graph.nodes)
    weight = node.args[3]
    inline(node, CELLS[node.target])
    for number, step_node in enumerate(added for added in graph.nodes if added not in before):
        step_node.meta.setdefault(STEP, (str(weight), number))


def _name_steps(nodes: Sequence[fx.Node]) -> None:
    """Give the values that an operator of the step computes in each of them the same name in ``meta``.

    A step begins with the product of the hidden state, and all steps of a layer call the same operators.
    """
    starts: dict[fx.Node, list[int]] = {}
    for at, node in enumerate(nodes):
        if node.target is aten.linear.default:
            starts.setdefault(node.args[1], []).append(at)  # type: ignore[arg-type]
    for weight, places in starts.items():
        if len(places) < 2:
            continue
        length = places[1] - places[0]
        steps = [nodes[at : at + length] for at in places]
        if all([member.target for member in step] == [member.target for member in steps[0]] for step in steps):
            for step in steps:
                for number, item in enumerate(step):
                    item.meta.setdefault(STEP, (weight.name, number))


def _lstm(x: Tensor, hx: Sequence[Tensor], *arguments: object) -> State:
    return _layers(_lstm_cell, x, list(zip(*(state.unbind(0) for state in hx), strict=True)), *arguments)  # type: ignore[arg-type]


def _gru(x: Tensor, hx: Tensor, *arguments: object) -> State:
    return _layers(_gru_cell, x, [(row,) for row in hx.unbind(0)], *arguments)  # type: ignore[arg-type]


def _rnn_cell(function: Callable[[Tensor], Tensor]) -> Cell:
    def cell(x: Tensor, state: State, params: Parameters) -> State:
        return (function(x + _product(state[0], params)),)

    return cell


def _rnn(function: Callable[[Tensor], Tensor]) -> Callable[..., State]:
    cell = _rnn_cell(function)

    def layers(x: Tensor, hx: Tensor, *arguments: object) -> State:
        return _layers(cell, x, [(row,) for row in hx.unbind(0)], *arguments)  # type: ignore[arg-type]

    return layers


def _lstm_cell(x: Tensor, state: State, params: Parameters) -> State:
    """Hochreiter and Schmidhuber, as in the documentation of ``torch.nn.LSTM``."""
    hidden, cell = state
    enter, keep, new, leave = (x + _product(hidden, params)).chunk(4, -1)
    cell = torch.sigmoid(keep) * cell + torch.sigmoid(enter) * torch.tanh(new)
    hidden = torch.sigmoid(leave) * torch.tanh(cell)
    return (F.linear(hidden, params[-1]) if len(params) % 2 else hidden), cell


def _gru_cell(x: Tensor, state: State, params: Parameters) -> State:
    """Cho et al., as in the documentation of ``torch.nn.GRU``."""
    (hidden,) = state
    (reset, update, new), (of_reset, of_update, of_new) = x.chunk(3, -1), _product(hidden, params).chunk(3, -1)
    candidate = torch.tanh(new + torch.sigmoid(reset + of_reset) * of_new)
    return (candidate + torch.sigmoid(update + of_update) * (hidden - candidate),)


def _product(hidden: Tensor, params: Parameters) -> Tensor:
    return F.linear(hidden, params[1], params[3] if len(params) > 3 else None)


def _layers(
    cell: Cell,
    x: Tensor,
    states: Sequence[State],
    parameters: Parameters,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> State:
    """Return the results of all steps of the last layer, and the last states of all."""
    del dropout, train
    per_state = len(parameters) // len(states)
    assert per_state in (4, 5) if has_biases else per_state in (2, 3)
    directions = 2 if bidirectional else 1
    axis = 1 if batch_first else 0
    last: list[State] = []
    for layer in range(num_layers):
        layers: list[Tensor] = []
        for direction in range(directions):
            index = layer * directions + direction
            params, state = parameters[index * per_state : (index + 1) * per_state], states[index]
            steps: list[Tensor] = []
            entered = F.linear(x, params[0], params[2] if has_biases else None).unbind(axis)
            for step in reversed(entered) if direction else entered:
                state = cell(step, state, params)
                steps.append(state[0])
            layers.append(torch.stack(steps[::-1] if direction else steps, axis))
            last.append(state)
        x = torch.cat(layers, -1) if bidirectional else layers[0]
    return x, *(torch.stack(tensors) for tensors in zip(*last, strict=True))


def _one_step(cell: Cell) -> Callable[..., Any]:
    """Return a cell ``(x, state, weights, biases)`` of torch, by ``cell`` of a layer."""

    def step(
        x: Tensor,
        state: Tensor | Sequence[Tensor],
        weight: Tensor,
        hidden_weight: Tensor,
        bias: Tensor | None = None,
        hidden_bias: Tensor | None = None,
    ) -> Tensor | State:
        biases = () if hidden_bias is None else (bias, hidden_bias)
        states = (state,) if isinstance(state, Tensor) else tuple(state)
        results = cell(F.linear(x, weight, bias), states, (weight, hidden_weight, *biases))  # type: ignore[arg-type]
        return results[0] if len(results) == 1 else results

    return step


RECURRENT: dict[object, Callable[..., State]] = {
    aten.lstm.input: _lstm,
    aten.gru.input: _gru,
    aten.rnn_tanh.input: _rnn(torch.tanh),
    aten.rnn_relu.input: _rnn(torch.relu),
}
"""Layers ``(x, state, parameters, ...)`` by operator."""

CELLS: dict[object, Callable[..., Any]] = {
    aten.lstm_cell.default: _one_step(_lstm_cell),
    aten.gru_cell.default: _one_step(_gru_cell),
    aten.rnn_tanh_cell.default: _one_step(_rnn_cell(torch.tanh)),
    aten.rnn_relu_cell.default: _one_step(_rnn_cell(torch.relu)),
}
"""Single steps by operator."""
