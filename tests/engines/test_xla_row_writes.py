"""Writes of rows of state on XLA: in place, and nothing outside. `xla_row_writes` alone needs no engine."""

import importlib.util

import pytest
import torch

from fx_importer import lower
from fx_importer.engines.function_extraction import extract_function
from fx_importer.rewrites.xla.row_writes import row_writes_to_case


class Cache(torch.nn.Module):
    """A cache of rows that is written and read."""

    rows: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(1, 4, 64, 8))

    def forward(self, x, position):
        self.rows.index_copy_(2, position, x)
        return self.rows @ x.transpose(2, 3)


@pytest.fixture(scope="module")
def lowered():
    inputs = torch.ones(1, 4, 1, 8), torch.tensor([2])
    return lower(Cache(), *inputs, output_type="stablehlo", mutation="functional")


def test_writes_of_donated_state_are_conditional(lowered):
    copy, function = extract_function(lowered.module, "main")
    attributes = function.attributes["arg_attrs"]
    del function.attributes["arg_attrs"]  # without them, no argument is state
    row_writes_to_case(copy.operation)
    assert "stablehlo.case" not in str(copy)
    function.attributes["arg_attrs"] = attributes
    row_writes_to_case(copy.operation)
    assert copy.operation.verify()
    assert str(copy).count("stablehlo.case") == 1


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="the extra 'xla' is not installed")
def test_xla_does_not_copy_the_state(lowered):
    caller = lowered.caller(backend="xla")
    code = caller._functions["main"]._program.as_text()
    assert not any(" copy(" in line and "64,8]" in line for line in code.splitlines())
    eager, x = Cache(), torch.randn(1, 4, 1, 8)
    for position in (3, 63, 3):
        x = x + 1
        at = torch.tensor([position])
        torch.testing.assert_close(caller(x, at), eager(x, at))
    before = caller.state["rows"]
    assert torch.equal(before, eager.rows)
    for position in (64, -1):
        caller(x, torch.tensor([position]))
        assert torch.equal(caller.state["rows"], before)
