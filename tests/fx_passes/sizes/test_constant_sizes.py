"""Unbacked sizes that depend only on constants are folded, for every output type."""

import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from fx_importer import lower
from fx_importer.fx_passes.sizes.constant_sizes import fold_constant_sizes


class Greatest(nn.Module):
    """A size that is the maximum of constant positions."""

    def forward(self, x):
        size: Any = (torch.arange(5).max() + 1).item()
        return x.repeat(size, 1) + torch.ones(size, 1)


class Masked(nn.Module):
    """Reads and writes by a constant mask; the second time along a later dimension."""

    def forward(self, x):
        mask = torch.arange(4) % 2 == 0
        written = torch.zeros_like(x)
        written[mask] = x[mask] * 2
        return written, x[:, mask].sum(1)


class Selected(nn.Module):
    """masked_select with a constant mask, on a tensor of higher rank."""

    def forward(self, x):
        return x.masked_select(torch.arange(4) % 2 == 0) * 2, x.masked_select(torch.ones(4, 4).tril() > 0)


class Diagonal(nn.Module):
    """nonzero of a lifted constant."""

    def __init__(self):
        super().__init__()
        self.eye = torch.eye(3)

    def forward(self, x):
        return torch.nonzero(self.eye) * x


class Written(nn.Module):
    """A size from a constant that is written to in between."""

    def forward(self, x):
        places = torch.arange(4)
        before = places.max().item()
        places[0] = 7
        after = places.max().item()
        return x.expand(before, 4).sum(0), x.expand(after, 4).sum(0)


MODELS = [(Greatest(), (1, 4)), (Masked(), (4, 4)), (Selected(), (4, 4)), (Diagonal(), (1,)), (Written(), (4,))]


def is_dynamic(program: ExportedProgram) -> bool:
    return any(re.search(r"\bu\d", str(node.meta.get("val"))) for node in program.graph.nodes)


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
@pytest.mark.parametrize(("model", "shape"), MODELS, ids=lambda each: type(each).__name__)
def test_size_of_constants_is_folded(model, shape, output_type):
    x = torch.randn(shape)
    program = torch.export.export(model, (x,))
    assert is_dynamic(program)
    assert not is_dynamic(fold_constant_sizes(program))
    torch.testing.assert_close(lower(program, output_type=output_type).run(x), model(x))


def test_size_of_inputs_or_state_stays_unbacked():
    class Of(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = nn.Buffer(torch.arange(3))

        def forward(self, x):
            return x[x > 0], torch.nonzero(self.seen), torch.nonzero(torch.rand(3))

    program = torch.export.export(Of(), (torch.ones(3),))
    assert fold_constant_sizes(program) is program


def test_program_of_static_sizes_is_unchanged():
    program = torch.export.export(nn.ReLU(), (torch.ones(3),))
    assert fold_constant_sizes(program) is program
