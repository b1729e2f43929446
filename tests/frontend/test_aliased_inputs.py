"""Memory that a program accesses through several names."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from fx_importer import UnsupportedProgramError, lower


class Holding(nn.Module):
    """Two buffers, of which ``forward`` mutates the first."""

    def __init__(self, first: torch.Tensor, second: torch.Tensor):
        super().__init__()
        self.first: torch.Tensor
        self.second: torch.Tensor
        self.register_buffer("first", first)
        self.register_buffer("second", second)

    def forward(self, x):
        self.first.view(-1).add_(x)
        return self.first + self.second


def write_first(a, b):
    a.add_(1)
    return a + b


ZEROS = torch.zeros(6)


@pytest.mark.parametrize(
    ("model", "inputs", "named"),
    [
        pytest.param(write_first, (ZEROS, ZEROS), "input 'a', which shares memory with the input 'b'", id="twice"),
        pytest.param(write_first, (ZEROS[:3], ZEROS[2:5]), "memory with the input 'b'", id="overlapping"),
        pytest.param(Holding(ZEROS, ZEROS), (torch.ones(6),), "memory with the buffer 'first'", id="registered twice"),
        pytest.param(Holding(ZEROS[:3], ZEROS[1:4]), (torch.ones(3),), "memory with the buffer", id="views"),
        pytest.param(
            Holding(held := torch.zeros(6), torch.ones(6)), (held,), "with the input 'x'", id="state and input"
        ),
    ],
)
def test_mutated_shared_memory_is_an_error(model, inputs, named):
    with pytest.raises(UnsupportedProgramError, match=named) as raised:
        lower(model, *inputs, mutation="functional")
    assert Path(__file__).name in str(raised.value)  # the line of the write


def test_all_mutated_shared_inputs_are_listed():
    def write_both(a, b):
        a.add_(1)
        b.add_(1)

    with pytest.raises(UnsupportedProgramError) as raised:
        lower(write_both, ZEROS, ZEROS, mutation="functional")
    assert [unsupported.subject for unsupported in raised.value.unsupported_nodes] == ["a", "b"]


def test_disjoint_views_are_not_aliases():
    lowered = lower(write_first, ZEROS[:3], ZEROS[3:], mutation="functional", output_type="linalg")
    a, b = torch.zeros(3), torch.ones(3)
    assert torch.equal(lowered.run(a, b), torch.full((3,), 2.0))
    assert torch.equal(a, torch.ones(3))


@pytest.mark.parametrize("inputs", [(ZEROS, ZEROS), (ZEROS, ZEROS.view(6))], ids=["same", "view"])
def test_tensor_given_twice_is_two_inputs(inputs):
    """torch.export would merge them into one input."""
    lowered = lower(lambda a, b: a - b, *inputs, output_type="linalg")
    assert torch.equal(lowered.run(torch.ones(6), torch.full((6,), 3.0)), torch.full((6,), -2.0))


def test_parameter_given_as_input_is_an_input():
    model = nn.Linear(3, 3)
    lowered = lower(model, model.weight, output_type="linalg")
    x = torch.randn(3, 3)
    torch.testing.assert_close(lowered.run(x), model(x).detach())


def test_wrapper_subclass_parameters_are_not_aliases():
    model = nn.Module()
    model.one, model.other = (nn.Parameter(TwoTensor(torch.ones(2), torch.ones(2)), False) for _ in range(2))
    model.forward = lambda x: x + 1
    x = torch.zeros(2)
    assert torch.equal(lower(model, x, output_type="linalg").run(x), torch.ones(2))


def test_tied_weights_are_accepted():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    x = torch.randn(2, 3)
    torch.testing.assert_close(lower(model, x, output_type="linalg").run(x), model(x).detach())


def test_sizes_are_static_beside_an_input_without_elements():
    x = torch.ones(2, 3)
    lowered = lower(lambda a, b: (a + 1, b + 1), x[:, :0], x, output_type="linalg")
    assert "?" not in str(lowered.module)
    assert lowered.run(x[:, :0], x)[1].equal(x + 1)
