"""States of LSTMs that torch.export records with a dimension too many."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fx_importer import lower
from fx_importer.errors import UnsupportedProgramError


class Results(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrence = nn.LSTM(4, 3)

    def forward(self, x):
        return self.recurrence(x)[0]


def exported_with_a_dimension_too_many(model):
    program = torch.export.export(model.eval(), (torch.randn(5, 2, 4),))
    (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.lstm.input)
    result, *states = node.meta["val"]
    node.meta["val"] = (result, *(each.reshape(1, 1, 2, 3) for each in states))
    return program


def test_states_with_a_dimension_too_many_are_refused():
    program = exported_with_a_dimension_too_many(nn.LSTM(4, 3))
    with pytest.raises(
        UnsupportedProgramError, match="lstm.*: its states have 4 dimensions in the program, and 3 in eager"
    ):
        lower(program, output_type="torch")


def test_states_that_nothing_reads_may_have_any_shape():
    model, x = Results(), torch.randn(5, 2, 4)
    program = exported_with_a_dimension_too_many(model)
    torch.testing.assert_close(lower(program, output_type="linalg-on-tensors").run(x), model(x))


@pytest.mark.parametrize("enabled", [True, False])
def test_casts_of_recurrent_layers_are_refused(enabled):
    model, x = nn.GRU(4, 3).eval(), torch.randn(5, 2, 4)

    def cast(x):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            return model(x)[0]

    if not enabled:
        torch.testing.assert_close(lower(cast, x, output_type="linalg-on-tensors").run(x), cast(x))
        return
    with pytest.raises(UnsupportedProgramError, match=r"gru.*: eager PyTorch computes its matmuls in torch.bfloat16"):
        lower(cast, x, output_type="torch")
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(UnsupportedProgramError, match="loses the casts"):
        lower(model, x, output_type="torch")
