"""Recurrent layers, unrolled by torch.export."""

import pytest
import torch
from torch import nn

from .harness import Case, check, normal, table


class Unrolled(nn.Module):
    """A cell in a Python loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 3)

    def forward(self, x: torch.Tensor):
        state = x.new_zeros(x.shape[1], 3)
        states = []
        for step in x:
            state = self.cell(step, state)
            states.append(state)
        return torch.stack(states), state


X = normal(3, 2, 4)


@pytest.mark.slow_rows(
    "^unrolled-tosa$",
    "^unrolled-stablehlo$",
    "^gru-tosa$",
    "^lstm_stacked_both_ways-tosa$",
    "^(lstm_stacked_both_ways-stablehlo|lstm_with_state-tosa|lstm_cell-stablehlo|rnn-tosa)$",
)
@table(
    Case("lstm", lambda: (nn.LSTM(4, 3), (X,))),
    Case("lstm_stacked_both_ways", lambda: (nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True), (X,))),
    Case("lstm_with_state", lambda: (nn.LSTM(4, 3), (X, (normal(1, 2, 3), normal(1, 2, 3))))),
    Case("gru", lambda: (nn.GRU(4, 3, batch_first=True), (X,))),
    Case("rnn", lambda: (nn.RNN(4, 3, nonlinearity="relu"), (X,))),
    Case("lstm_cell", lambda: (nn.LSTMCell(4, 3), (X[0],))),
    Case("unrolled", lambda: (Unrolled(), (X,))),
)
def test_recurrent(case, output_type):
    check(case, output_type)
