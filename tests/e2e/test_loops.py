"""Scans, scatters and sorts, which are loops in linalg: ranks, dtypes, sizes, ties and NaN."""

import pytest
import torch
from torch.export import Dim

from fx_importer import UsageError, lower
from fx_importer.mlir.bindings import ir

from .harness import LINALG, assert_loops_bufferize, assert_same, integers, normal

ANY = Dim.DYNAMIC
NAN, INF = float("nan"), float("inf")
ODD = torch.tensor([[3.0, NAN, -INF, 0.0, NAN, 3.0, INF, -1.0, 0.5], [1.0] * 9])
TIES = integers(2, 37, low=0, high=5, dtype=torch.int32)
ROWS = torch.tensor([[0, 2, 1, 0], [1, 1, 0, 2], [2, 0, 0, 0]])


def assign(x, i, y):
    x = x.clone()
    x[:, i, i] = y
    return x


PROGRAMS = {
    "cumsum_of_rank_1": (lambda x: x.cumsum(0), normal(7)),
    "cumsum_of_rank_4": (lambda x: (x.cumsum(-2), x.cumsum(0)), normal(2, 3, 4, 5)),
    "cumsum_of_rank_0": (lambda x: x.cumsum(0), torch.tensor(2.0)),
    "cumsum_of_nothing": (lambda x: (x.cumsum(-1), x.cumsum(0)), torch.ones(3, 0)),
    "cumsum_of_float16": (lambda x: x.cumsum(-1), normal(2, 300, dtype=torch.float16)),
    "cumsum_of_bfloat16": (lambda x: x.cumsum(-1), normal(2, 300, dtype=torch.bfloat16)),
    "cumsum_to_float16": (lambda x: x.cumsum(0, dtype=torch.float16), normal(30, 2)),
    "cumsum_of_booleans": (lambda x: (x > 0).cumsum(1), normal(2, 9)),
    "cumsum_of_int8": (lambda x: x.cumsum(1, dtype=torch.int8), TIES.to(torch.int8) * 30),
    "cumprod_of_bfloat16": (lambda x: x.cumprod(0), normal(9, 2, dtype=torch.bfloat16)),
    "cumprod_of_integers": (lambda x: x.cumprod(-1), TIES),
    "sort_with_nan": (lambda x: (x.sort(stable=True), x.sort(stable=True, descending=True)), ODD),
    "sort_of_ties": (lambda x: (x.sort(dim=-1, stable=True), x.sort(dim=1, stable=True, descending=True)), TIES),
    "sort_of_rank_4": (lambda x: (x.sort(2), x.sort(0, descending=True)), normal(3, 2, 17, 2)),
    "topk_in_any_order": (lambda x: x.topk(3, -1, sorted=False)[0].sum(-1), normal(3, 7)),
    "first_of_many_sorted": (
        lambda x: (x.sort(dim=1, stable=True)[1][:, :5], x.sort(dim=1, stable=True, descending=True)[0][:, :9]),
        torch.cat([ODD.reshape(1, -1, 1).expand(2, -1, 3), (normal(2, 200, 3) * 4).round()], 1),
    ),
    "topk_of_one": (lambda x: x.topk(1), normal(3, 1)),
    "sort_of_nothing": (lambda x: x.sort(0), torch.ones(0, 2)),
    "sort_of_bfloat16": (lambda x: x.sort(stable=True), normal(50, dtype=torch.bfloat16)),
    "sort_of_int64": (lambda x: (x.sort(stable=True), x[0].sort()), integers(3, 6, low=0, high=3)),
    "sort_of_uint8": (lambda x: x.sort(stable=True), integers(40, low=0, high=256, dtype=torch.uint8)),
    "kthvalue": (lambda x: (x.kthvalue(2), x.kthvalue(3, 0, keepdim=True)), normal(4, 5)),
    "scatter_reduce": (
        lambda x, i, y: [x.scatter_reduce(0, i, y, kind) for kind in ("sum", "prod", "mean", "amax", "amin")],
        *(normal(3, 4), ROWS, normal(3, 4, seed=2)),
    ),
    "scatter_reduce_without_self": (
        lambda x, i, y: x.scatter_reduce(1, i, y, "amax", include_self=False),
        *(normal(3, 4), ROWS, normal(3, 4, seed=2)),
    ),
    "index_put_of_rank_4": (assign, normal(2, 3, 3, 4), torch.tensor([2, 0]), normal(2, 2, 4)),
    "index_add_of_integers": (
        lambda x, i, y: x.index_add(1, i, y),
        *(integers(3, 4, low=0, high=9), torch.tensor([3, 3, 0]), integers(3, 3, low=0, high=9)),
    ),
    "bincount": (lambda x: x.flatten().bincount(), ROWS),
    "nonzero": (lambda x: (x > 0).nonzero(), normal(3, 4)),
}


@pytest.mark.slow_rows(
    "^cumprod_of_integers$",
    "^nonzero$",
    "^sort_with_nan$",
    "^bincount$",
    "^kthvalue$",
    "^sort_of_rank_4$",
    "^sort_of_ties$",
    "^sort_of_int64$",
    "^scatter_reduce$",
    "^index_put_of_rank_4$",
    "^cumprod_of_bfloat16$",
    "^topk_in_any_order$",
    "^sort_of_uint8$",
    "^index_add_of_integers$",
    "^scatter_reduce_without_self$",
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops(name):
    program, *inputs = PROGRAMS[name]
    lowered = lower(program, *inputs, output_type=LINALG)
    ir.Module.parse(str(lowered.module), ir.Context()).operation.verify()  # in a context without torch-mlir's dialects
    assert_loops_bufferize(lowered.module)
    assert_same(lowered.run(*inputs), program(*inputs), None)


DYNAMIC = {
    "cumsum": (lambda x: (x.cumsum(0), x.cumsum(-1)), lambda n, m: (normal(n, m),), ({0: ANY, 1: ANY},)),
    "sort": (lambda x: (x.sort(0), x.sort(1, descending=True)), lambda n, m: (normal(n, m),), ({0: ANY, 1: ANY},)),
    "topk": (lambda x: x.topk(2), lambda n, m: (normal(n, m),), ({0: ANY, 1: ANY},)),
    "scatter_add": (
        lambda x, i, y: x.scatter_add(1, i, y),
        lambda n, m: (normal(n, m), integers(n, 5, low=0, high=m), normal(n, 5)),
        ({0: ANY, 1: ANY}, {0: ANY}, {0: ANY}),
    ),
    "index_put": (
        lambda x, i, y: x.index_put((i,), y, accumulate=True),
        lambda n, m: (normal(n, m), torch.tensor([n - 1, 0, n - 1]), normal(3, m)),
        ({0: ANY, 1: ANY}, None, {1: ANY}),
    ),
}


@pytest.mark.slow_rows("^(topk|scatter_add)$")
@pytest.mark.parametrize("name", DYNAMIC)
def test_loops_of_dynamic_sizes(name):
    program, inputs, dynamic_shapes = DYNAMIC[name]
    lowered = lower(program, *inputs(3, 4), output_type=LINALG, dynamic_shapes=dynamic_shapes)
    for sizes in ((3, 4), (5, 2), (2, 33)):
        given = inputs(*sizes)
        assert_same(lowered.run(*given), program(*given), None)


def test_topk_of_short_rows_on_iree():
    lowered = lower(lambda x: x.topk(2), normal(5, 8), output_type=LINALG, dynamic_shapes=({0: ANY},))
    given = normal(7, 8)
    assert_same(lowered.caller(backend="iree")(given), given.topk(2), None)


def test_index_out_of_range():
    inputs = normal(3, 4), torch.tensor([0, 1]), normal(2, 4)
    lowered = lower(lambda x, i, y: x.index_put((i,), y, accumulate=True), *inputs, output_type=LINALG)
    with pytest.raises(UsageError, match=r"an index is out of range for a tensor of shape \[3, 4\] \(at .*test_loops"):
        lowered.run(inputs[0], torch.tensor([0, 3]), inputs[2])
