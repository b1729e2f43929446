"""Reads at all positions of axes are views."""

import pytest
import torch

from fx_importer import lower

BATCH, ROWS, KEYS = torch.arange(2).view(2, 1, 1), torch.arange(3).view(3, 1), torch.arange(4)
VIEWS = {
    "in order": lambda x: x[BATCH, KEYS],
    "exchanged": lambda x: x[torch.arange(2), torch.arange(4).view(4, 1)],
    "with an axis after": lambda x: x.unsqueeze(-1).expand(2, 4, 5)[BATCH, KEYS],
    "three": lambda x: x.unsqueeze(1).expand(2, 3, 4)[BATCH, ROWS, KEYS],
    "one of two": lambda x: x[torch.arange(2)],
}
READS = {
    "backwards": lambda x: x[BATCH, KEYS.flip(0)],
    "part": lambda x: x[BATCH, torch.arange(3)],
    "one axis": lambda x: x.t()[torch.arange(2), torch.arange(2)],
    "repeated": lambda x: x[BATCH, torch.arange(2).repeat(2)],
}


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("name", [*VIEWS, *READS])
def test_reads_at_positions_are_views(name: str):
    model, x = Model({**VIEWS, **READS}[name]), torch.arange(8.0).view(2, 4)
    lowered = lower(model, x, output_type="stablehlo")
    assert torch.equal(lowered.run(x), model(x))
    assert ("stablehlo.gather" in str(lowered.module)) == (name in READS)


def test_dynamic_sizes_are_read():
    model, x = Model(lambda x: x[torch.arange(x.shape[0]).view(-1, 1), torch.arange(4)]), torch.arange(8.0).view(2, 4)
    lowered = lower(model, x, output_type="linalg-on-tensors", dynamic_shapes=({0: torch.export.Dim("b")},))
    other = torch.randn(3, 4)
    assert torch.equal(lowered.run(other), model(other))


def test_axes_after_the_positions_may_be_dynamic():
    model, x = Model(lambda x: x[torch.arange(3).view(3, 1, 1), torch.arange(2)]), torch.randn(3, 2, 5)
    lowered = lower(model, x, output_type="linalg-on-tensors", dynamic_shapes=({2: torch.export.Dim("n")},))
    other = torch.randn(3, 2, 7)
    assert torch.equal(lowered.run(other), model(other))
