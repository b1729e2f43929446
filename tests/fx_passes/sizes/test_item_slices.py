"""Slices with computed starts become gathers, for output types without scalars."""

from typing import Any

import pytest
import torch
from torch import nn

from fx_importer import lower


class Read(nn.Module):
    """A window, a row, and a strided slice, from a computed start."""

    def forward(self, x, at):
        place = at.item()
        torch._check(place >= 0)
        torch._check(place <= 2)
        return x.narrow(1, place, 3), x.select(0, place + 1), x[:, place : place + 3 : 2]


class FromTheEnd(nn.Module):
    def forward(self, x, at):
        place = at.item()
        torch._check(place >= -3)
        torch._check(place <= -1)
        return x.select(1, place)


class Written(nn.Module):
    """A cache: a row and a window are written at a counter's position."""

    def forward(self, x, at):
        place = at.item()
        torch._check(place >= 0)
        torch._check(place <= 2)
        cache = torch.slice_scatter(x, x[:, :2] * 2, 1, place, place + 2)
        return torch.select_scatter(cache, x[0] + 1, 0, place)


class Computed(nn.Module):
    """A computed scalar as an operand beside tensors."""

    def forward(self, x, at):
        place = at.item()
        return x * place, x + (place - 1), (torch.arange(5) < place) & (torch.arange(5) != 1 + place * 2)


X = torch.arange(20.0).reshape(4, 5)
CASES: list[tuple[nn.Module, list[int], torch.dtype]] = [
    (Read(), [0, 1, 2], torch.int64),
    (Written(), [0, 1, 2], torch.int64),
    (Written(), [2], torch.int32),
    (FromTheEnd(), [-3, -1], torch.int64),
    (Computed(), [-1, 0, 3], torch.int64),
]
NAMES = ["read", "written", "written_at_int32", "from_the_end", "computed"]


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
@pytest.mark.parametrize(("model", "places", "dtype"), CASES, ids=NAMES)
def test_slice_at_a_computed_position_agrees(model: nn.Module, places: list[int], dtype: torch.dtype, output_type: Any):
    program = torch.export.export(model, (X, torch.tensor(places[0], dtype=dtype)))
    caller = lower(program, output_type=output_type).caller(backend="jit")
    for place in places:
        at = torch.tensor(place, dtype=dtype)
        torch.testing.assert_close(caller(X, at), model(X, at))
