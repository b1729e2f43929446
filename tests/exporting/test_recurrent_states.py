"""States of LSTMs that torch.export records with a dimension too many."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fx_importer import lower
from fx_importer.errors import UnsupportedProgramError


def test_states_with_a_dimension_too_many_are_refused():
    program = torch.export.export(nn.LSTM(4, 3).eval(), (torch.randn(5, 2, 4),))
    (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.lstm.input)
    result, *states = node.meta["val"]
    node.meta["val"] = (result, *(each.reshape(1, 1, 2, 3) for each in states))
    with pytest.raises(
        UnsupportedProgramError, match="lstm.*: its states have 4 dimensions in the program, and 3 in eager"
    ):
        lower(program, output_type="torch")
