"""Rules of sorts, cumulative operators and accumulation against eager: ties, infinities and NaN."""

import math
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from fx_importer.decompositions.emulation.complex import reductions
from fx_importer.decompositions.indexing import index_add, index_put, indexing, scatter_reduce
from fx_importer.decompositions.reduction import cumulative
from fx_importer.decompositions.sort import median, searchsorted, sorting

TIES = torch.randint(0, 4, (4, 7), generator=torch.Generator().manual_seed(0))
NORMAL = torch.randn(4, 7, generator=torch.Generator().manual_seed(0))
NOT_NUMBERS = NORMAL.clone()
NOT_NUMBERS[1, 2] = NOT_NUMBERS[1, 5] = math.nan
NOT_NUMBERS[0, 3], NOT_NUMBERS[3, 0] = math.inf, -math.inf
ROWS = {"ties": TIES, "flags": TIES > 1, "normal": NORMAL, "not_numbers": NOT_NUMBERS, "one": torch.tensor(2.0)}

pytestmark = pytest.mark.filterwarnings("ignore:.*(beta|deprecated)")


def same(actual: Any, expected: Any) -> None:
    actual, expected = (tuple(each) if isinstance(each, (tuple, list)) else each for each in (actual, expected))
    assert_close(actual, expected, equal_nan=True)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("max_pairs", [sorting.MAX_PAIRS, 0], ids=["counting", "network"])
@pytest.mark.parametrize("descending", [False, True])
def test_sort(name: str, max_pairs: int, descending: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "MAX_PAIRS", max_pairs)
    x = ROWS[name]
    for dim in (0, -1):
        expected = torch.sort(x, dim=dim, descending=descending, stable=True)
        same(sorting.sort(x, dim, descending), expected)
        if max_pairs == 0:
            continue  # topk leaves few elements of many to C++
        kept = min(3, x.shape[dim]) if x.dim() else 1
        found = sorting.topk(x, kept, dim, descending)
        same(found, tuple(each.narrow(dim, 0, kept) if x.dim() else each for each in expected))


@pytest.mark.parametrize("name", ROWS)
def test_cumulative(name: str) -> None:
    x = ROWS[name]
    for dim in (0, -1):
        same(cumulative.cummax(x, dim), torch.cummax(x, dim))
        same(cumulative.cummin(x, dim), torch.cummin(x, dim))
        same(cumulative.cumprod_by_scan(x, dim), torch.cumprod(x, dim))
        if x.is_floating_point():
            same(cumulative.logcumsumexp(x * 100, dim), torch.logcumsumexp(x * 100, dim))


@pytest.mark.parametrize("shape", [(5,), (3, 9, 2), (2, 0), ()])
def test_cumulative_of_complex_numbers(shape: tuple[int, ...]) -> None:
    x = 4 * torch.randn(shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    for dim in (0, -1):
        same(reductions.logcumsumexp(x, dim), torch.logcumsumexp(x, dim))
    same(reductions.logaddexp(x, x * 1j), torch.logaddexp(x, x * 1j))


def test_logcumsumexp_of_complex_infinities() -> None:
    x = torch.tensor([complex(-math.inf, 0), 1 + 3j, 1 - 3j, -math.inf, 2 + 3j, 1 + 100j, math.inf, 3])
    same(reductions.logcumsumexp(x, 0), torch.logcumsumexp(x, 0))


@pytest.mark.parametrize("name", ["ties", "normal", "not_numbers", "one"])
def test_medians(name: str) -> None:
    x = ROWS[name]
    same(median.median(x), torch.median(x))
    same(median.nanmedian(x), torch.nanmedian(x))
    for dim in (0, -1):
        for rule, eager in ((median.median_dim, torch.median), (median.nanmedian_dim, torch.nanmedian)):
            found, expected = rule(x, dim), eager(x, dim)
            same(found[0], expected[0])
            if name != "ties":
                same(found[1], expected[1])


@pytest.mark.parametrize("name", ["ties", "flags", "normal", "one"])
def test_mode(name: str) -> None:
    for dim in (0, -1):
        same(median.mode(ROWS[name], dim), torch.mode(ROWS[name], dim))
        same(median.mode(ROWS[name], dim, True), torch.mode(ROWS[name], dim, True))


@pytest.mark.parametrize("max_comparisons", [1 << 18, 0], ids=["at_once", "binary_search"])
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(max_comparisons: int, right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searchsorted, "MAX_COMPARISONS", max_comparisons)
    rows = torch.sort(NORMAL, -1)[0]
    values = torch.cat([rows[:, 1:4], NORMAL, torch.tensor([[math.nan, 9, -9]] * 4)], 1)
    same(searchsorted.searchsorted(rows, values, right=right), torch.searchsorted(rows, values, right=right))
    same(searchsorted.searchsorted(rows[0], 0.3, right=right), torch.searchsorted(rows[0], 0.3, right=right))
    order = NORMAL.argsort(-1)
    same(searchsorted.searchsorted(NORMAL, values, sorter=order), torch.searchsorted(NORMAL, values, sorter=order))
    buckets = torch.bucketize(values, rows[0], out_int32=True, right=right)
    same(searchsorted.bucketize(values, rows[0], out_int32=True, right=right), buckets)


def test_isin() -> None:
    some = torch.tensor([[1], [3]])
    same(searchsorted.isin(TIES, some), torch.isin(TIES, some))
    same(searchsorted.isin(TIES, some, invert=True), torch.isin(TIES, some, invert=True))


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("kind", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_scatter_reduce(kind: Any, include_self: bool, dtype: torch.dtype) -> None:
    x, source = (NOT_NUMBERS, NORMAL * 3) if dtype == torch.float32 else (TIES, (NORMAL * 9).to(dtype))
    for dim in (0, 1, -1):
        index = torch.randint(0, x.shape[dim], (3, 4), generator=torch.Generator().manual_seed(1))
        expected = x.scatter_reduce(dim, index, source, kind, include_self=include_self)
        same(scatter_reduce.scatter_reduce(x, dim, index, source, kind, include_self=include_self), expected)
        if kind != "sum":
            expected = x.index_reduce(dim, index[0, :3], corner(source, dim), kind, include_self=include_self)
            found = scatter_reduce.index_reduce(
                x, dim, index[0, :3], corner(source, dim), kind, include_self=include_self
            )
            same(found, expected)


def corner(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.narrow(dim, 0, 3)


def test_sums_of_rows_that_are_infinite() -> None:
    index = torch.tensor([2, 0, 3, 2])
    same(index_add.index_add(NORMAL, 0, index, NOT_NUMBERS), NORMAL.index_add(0, index, NOT_NUMBERS))
    same(index_add.index_add(NORMAL, 1, index, NOT_NUMBERS[:, :4]), NORMAL.index_add(1, index, NOT_NUMBERS[:, :4]))
    same(index_add.index_add(TIES, 0, index, TIES, alpha=2), TIES.index_add(0, index, TIES, alpha=2))
    added = NORMAL.index_put((index - 4,), NOT_NUMBERS, accumulate=True)
    same(index_put.index_put_of_last_writes(NORMAL, [index - 4], NOT_NUMBERS, True), added)
    pairs = (index[:3, None], index[None, :2])
    values = NOT_NUMBERS[:3, :2]
    same(
        index_put.index_put_of_last_writes(NORMAL, pairs, values, True),
        NORMAL.index_put(pairs, values, accumulate=True),
    )


def test_flat_places() -> None:
    places = torch.tensor([[1, -2], [7, 1]])
    same(indexing.take(NORMAL, places), NORMAL.take(places))
    same(indexing.take(torch.tensor(2.0), places[:1, :1] - 1), torch.tensor([[2.0]]))
    same(index_put.put(NORMAL, places, places * 2.0, True), NORMAL.put(places, places * 2.0, True))
    scattered = NORMAL.scatter(1, places % 6, 3.0, reduce="multiply")
    same(scatter_reduce.scatter(NORMAL, 1, places % 6, 3.0, reduce="multiply"), scattered)
