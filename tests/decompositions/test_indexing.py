"""Rules of indexing, views and shapes against eager."""

import pytest
import torch
from torch.testing import assert_close

from fx_importer.decompositions.indexing import index_put, indexing, reshape, strided_views

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("shifts, dims", [([1], [0]), ([-2, 7], [0, 1]), ([0], [1]), ([5], ()), ([6], [1])])
def test_roll(shifts: list[int], dims: list[int]) -> None:
    x = torch.arange(24).reshape(4, 6)
    assert_close(reshape.roll(x, shifts, dims), torch.roll(x, shifts, dims))


def test_roll_of_nothing_and_of_a_scalar() -> None:
    assert_close(reshape.roll(torch.empty(0, 2), [1], [0]), torch.empty(0, 2))
    assert_close(reshape.roll(torch.tensor(3), [1], [0]), torch.tensor(3))


@pytest.mark.parametrize("dims", [[0], [0, 2], [1], [-1, 0], []])
def test_squeeze(dims: list[int]) -> None:
    x = torch.randn(1, 3, 1)
    assert reshape.squeeze(x, dims).shape == aten.squeeze.dims(x, dims).shape


VIEWS = {
    "_reshape_alias_copy": (torch.randn(4, 6), (3, 8), (8, 1)),
    "as_strided_copy": (torch.randn(4, 6), (3, 2), (6, 2), 1),
    "diagonal_copy": (torch.randn(4, 6), 1),
    "detach_copy": (torch.randn(4),),
    "narrow_copy": (torch.randn(4, 6), 1, 2, 3),
    "permute_copy": (torch.randn(4, 6), (1, 0)),
    "select_copy": (torch.randn(4, 6), -1, 2),
    "slice_copy": (torch.randn(4, 6), 1, 1, 6, 2),
    "split_copy": (torch.randn(4, 6), 4, 1),
    "unbind_copy": (torch.randn(4, 6), 1),
    "view_as_complex_copy": (torch.randn(4, 2),),
    "view_as_real_copy": (torch.randn(4, dtype=torch.complex64),),
    "view_copy": (torch.randn(4, 6), (6, 4)),
}


def test_every_copied_view_has_its_arguments_here() -> None:
    assert {rule.operators[0].overloadpacket.__name__ for rule in reshape.COPIES} == set(VIEWS)


@pytest.mark.parametrize("rule", reshape.COPIES, ids=lambda rule: str(rule.operators[0]))
def test_copied_views(rule) -> None:
    (operator,) = rule.operators
    arguments = VIEWS[operator.overloadpacket.__name__]
    if operator is aten.view_copy.dtype:
        arguments = (arguments[0], torch.int32)
    assert_close(list(rule(*arguments)), list(operator(*arguments)))


@pytest.mark.parametrize("offset", [-1, 0, 2])
@pytest.mark.parametrize("axes", [(0, 1), (2, 0), (-1, -2)])
def test_diagonals(offset: int, axes: tuple[int, int]) -> None:
    x = torch.arange(60.0).reshape(3, 4, 5)
    expected = x.diagonal(offset, *axes)
    assert_close(strided_views.diagonal(x, offset, *axes), expected)
    source = torch.full_like(expected, -1)
    expected = torch.diagonal_scatter(x, source, offset, *axes)
    assert_close(strided_views.diagonal_scatter(x, source, offset, *axes), expected)


@pytest.mark.parametrize("dim, size, step", [(0, 2, 1), (1, 3, 2), (-1, 5, 1), (1, 4, 3)])
def test_windows(dim: int, size: int, step: int) -> None:
    x = torch.arange(60.0).reshape(3, 4, 5)
    assert_close(strided_views.unfold(x, dim, size, step), x.unfold(dim, size, step))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    "shape, axes",
    [((3, 4), (1,)), ((2, 3, 4), (1,)), ((2, 3, 4), (2,)), ((2, 3, 4), (1, 2)), ((2, 3, 4, 5), (1, 2))],
)
def test_index_put(shape: tuple[int, ...], axes: tuple[int, ...], accumulate: bool) -> None:
    x = torch.randn(shape)
    indices = [torch.tensor([[0, 2], [1, 0]]) if axis in axes else None for axis in range(max(axes) + 1)]
    values = torch.randn(aten.index(x, indices).shape)
    if not accumulate:
        indices = [None if index is None else index[:1, :1] for index in indices]  # no place twice
        values = torch.randn(aten.index(x, indices).shape)
    expected = aten.index_put(x, indices, values, accumulate)
    assert_close(index_put.index_put_of_leading_axes(x, indices, values, accumulate), expected)
    assert_close(index_put.index_put(x, indices, values, accumulate), expected)


def test_index_put_counts_negative_indices_from_the_end() -> None:
    x, indices = torch.zeros(2, 3, 4), [torch.tensor([-1]), None, torch.tensor([-2])]
    expected = aten.index_put(x, indices, torch.ones(()))
    assert_close(index_put.index_put(x, indices, torch.ones(())), expected)
    (first, _, last) = indexing.nonnegative_indices(x, indices)
    assert (first, last) == (torch.tensor([1]), torch.tensor([2]))


def test_index_put_by_a_mask() -> None:
    x = torch.randn(3, 4)
    mask = x > 0
    for values in (torch.randn(int(mask.sum())), torch.ones(()), torch.ones(1)):
        for accumulate in (False, True):
            found = index_put.index_put(x, [mask], values, accumulate)
            assert_close(found, x.index_put((mask,), values, accumulate))
    assert_close(index_put.index_put(x, [x[:, 0] > 9], torch.randn(0, 4)), x)


def test_index_put_by_masks_of_any_axes() -> None:
    x = torch.randn(3, 4, 5)
    columns = [torch.tensor(mask) for mask in ([True, False, True, False], [False] * 4, [True] * 4)]
    ints = [torch.tensor(2), torch.tensor([1, -1]), torch.tensor([[1], [0]])]
    planes = torch.randn(4, 5) > 0.5
    masks = [[None, mask] for mask in columns] + [[None, planes], [torch.tensor(True), x[:, 0, 0] > 0]]
    masks += [[index, mask] for mask in columns[:1] for index in ints] + [[None, columns[0], None, ints[0]][:3]]
    masks += [[index, columns[0], torch.tensor(3)] for index in ints] + [[ints[1], None, x[0, 0] > 9]]
    masks += [[ints[0], planes], [None, columns[0], torch.arange(5) > 2], [x[:, 0, 0] > 9, columns[2]]]
    for indices in masks:
        try:
            picked = x[tuple(slice(None) if index is None else index for index in indices)]
        except IndexError:  # an empty mask and two integers
            continue
        for values in (torch.tensor(7.0), torch.randn(picked.shape), torch.randn(picked.shape[-1:])):
            for accumulate in (False, True):
                found = index_put.index_put(x, indices, values, accumulate)
                assert_close(found, aten.index_put(x, indices, values, accumulate))
