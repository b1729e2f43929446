"""scan, map and associative_scan: loops over a dimension, for several lengths, equal to eager."""

from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan, associative_scan_op
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch.export import Dim
from torch.utils import _pytree as pytree

from fx_importer import lower

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script_method:DeprecationWarning"
)  # from torch's partitioner


class Scans(torch.nn.Module):
    """The state accumulates scaled rows; results have another shape than the rows, in two leaves."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.5, 2.0, -1.0]))

    def forward(self, x):
        return scan(self.combine, x[0], x)

    def combine(self, state: Any, row: Any):
        new = state + row * self.weight
        return new, (torch.cat([new, state]), {"norm": torch.softmax(state * row, 0).sum()})


class ScansColumnsBackwards(torch.nn.Module):
    def forward(self, x):
        return scan(lambda state, row: (state + row, state * row), x[:, 0].clone(), x, dim=1, reverse=True)


class Concatenates(torch.nn.Module):
    def forward(self, x):
        def combine(state: Any, row: Any):
            return state + row, torch.cat([row, state])

        return scan(combine, x[0], x)


class Maps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[0.5], [2.0]]))

    def forward(self, x, y):
        def outer_and_sum(row: Any, y: Any):
            return {"outer": row * self.weight, "sum": row.sum() + y}

        return torch_map(outer_and_sum, x, y)


class Associates(torch.nn.Module):
    """A linear recurrence on pairs, as the operator that remains in an exported program."""

    def forward(self, a, b):
        return associative_scan_op(lambda a0, b0, a1, b1: [a0 * a1, b0 * a1 + b1], [a, b], ())

    @staticmethod
    def eager(a, b):
        def combine(left, right):
            return left[0] * right[0], left[1] * right[0] + right[1]

        return associative_scan(combine, (a, b), dim=0, combine_mode="generic")


class AssociatesBackwards(torch.nn.Module):
    def forward(self, x):
        return associative_scan(lambda a, b: a + b, x, dim=1, reverse=True, combine_mode="generic")


class ScanOfMapUnderCond(torch.nn.Module):
    def forward(self, x):
        def scaled(element: Any, state: Any):
            return element * state.sum()

        def combine(state, row):
            state = torch.cond(row.sum() > 0, lambda s, r: s + r, lambda s, r: s - r, (state, row))
            return state, torch_map(scaled, row, state)

        return scan(combine, x[0], x)


def rows(length, width=3):
    return torch.linspace(-1, 1, length * width).reshape(length, width)


def agrees(lowered, expected, *inputs):
    leaves = pytree.tree_leaves(expected)
    assert len(leaves) > 0
    for result, wanted in zip(pytree.tree_leaves(lowered.run(*inputs)), leaves, strict=True):
        torch.testing.assert_close(result, wanted)


LENGTH = {0: Dim("length", min=2)}


@pytest.fixture(scope="module")
def dynamic_scan():
    return lower(Scans(), rows(4), dynamic_shapes=(LENGTH,), output_type="linalg")


@pytest.fixture(scope="module")
def dynamic_map():
    return lower(Maps(), rows(4), torch.tensor(3.0), dynamic_shapes=(LENGTH, None), output_type="linalg")


@pytest.fixture(scope="module")
def dynamic_associative_scan():
    return lower(Associates(), rows(4), rows(4), dynamic_shapes=(LENGTH, LENGTH), output_type="linalg")


@pytest.mark.parametrize("length", [2, 3, 7])
def test_scan_of_dynamic_length(dynamic_scan, length):
    agrees(dynamic_scan, Scans()(rows(length)), rows(length))


@pytest.mark.parametrize("length", [2, 3, 7])
def test_map_of_dynamic_length(dynamic_map, length):
    inputs = rows(length), torch.tensor(3.0)
    agrees(dynamic_map, Maps()(*inputs), *inputs)


@pytest.mark.parametrize("length", [2, 3, 7])
def test_associative_scan_of_dynamic_length(dynamic_associative_scan, length):
    inputs = rows(length), rows(length) + 1
    agrees(dynamic_associative_scan, Associates.eager(*inputs), *inputs)


def test_scan_of_columns_backwards():
    agrees(lower(ScansColumnsBackwards(), rows(2), output_type="linalg"), ScansColumnsBackwards()(rows(2)), rows(2))


def test_scan_of_one():
    agrees(lower(Scans(), rows(1), output_type="linalg"), Scans()(rows(1)), rows(1))


def test_map_of_one():
    inputs = rows(1), torch.tensor(3.0)
    agrees(lower(Maps(), *inputs, output_type="linalg"), Maps()(*inputs), *inputs)


def test_associative_scan_of_one():
    inputs = rows(1), rows(1)
    agrees(lower(Associates(), *inputs, output_type="linalg"), inputs, *inputs)


def test_reversed_associative_scan_inlined_by_export():
    agrees(lower(AssociatesBackwards(), rows(2), output_type="linalg"), AssociatesBackwards()(rows(2)), rows(2))


def test_dynamic_width():
    torch._dynamo.reset()  # after an earlier scan, Dynamo assumes that the width is not 3
    model, shapes = Concatenates(), ({0: Dim("length", min=2), 1: Dim("width", min=2)},)
    lowered = lower(model, rows(2, 4), dynamic_shapes=shapes, output_type="linalg")
    for length, width in ((2, 2), (5, 3)):
        agrees(lowered, model(rows(length, width)), rows(length, width))


def test_nested():
    agrees(lower(ScanOfMapUnderCond(), rows(3), output_type="linalg"), ScanOfMapUnderCond()(rows(3)), rows(3))
