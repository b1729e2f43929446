"""Reductions: sums, extremes, scans and sorts."""

import pytest
import torch

from .harness import Case, check, integers, normal, table

X = normal(2, 3, 4)
POWSUM = torch.ops.aten.linalg__powsum
# Ties: the first index is returned.
NARROW = (*(torch.tensor([1, 100, 100, 100]).to(dtype) for dtype in (torch.int8, torch.uint8, torch.int16)),)
TIES = integers(3, 6, low=0, high=4)
ROWS = normal(3, 5).sort(-1)[0]


@pytest.mark.slow_rows("^any and all over axes-stablehlo$")
@table(
    Case("sums", lambda: (lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True)), (X,))),
    Case("means", lambda: (lambda x: (x.mean(), x.mean(-1), x.mean((0, 1), keepdim=True)), (X,))),
    Case("variances", lambda: (lambda x: (x.var(1), x.var(1, correction=0), x.std(), torch.var_mean(x, 2)[1]), (X,))),
    Case("extremes", lambda: (lambda x: (x.amax(1), x.amin((0, 2)), x.max(), x.min()), (X,))),
    Case("extremes_and_where", lambda: (lambda x: (x.max(1), x.min(2)), (X,))),
    Case("argmax", lambda: (lambda x: (x.argmax(), x.argmax(1), x.argmin(-1, keepdim=True)), (X,))),
    Case("argmax_of_ties", lambda: (lambda x: (x.argmax(1), x.max(1).indices), (TIES,))),
    Case("products", lambda: (lambda x: (x.prod(1), x.prod()), (X,))),
    Case("bools", lambda: (lambda x: ((x > 0).any(), (x > 0).all(1), (x > 0).any(2), (x > 0).sum(1)), (X,))),
    Case("norms", lambda: (lambda x: (x.norm(), x.norm(dim=1), torch.linalg.vector_norm(x, 1, dim=2)), (X,))),
    Case("power_sums", lambda: (lambda x: (POWSUM(x, 3), POWSUM(x, 0, [1], True), POWSUM(x, 1, [-1])), (X,))),
    Case("norm_of_order_infinity", lambda: (lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1), (X,))),
    Case("logsumexp", lambda: (lambda x: (x.logsumexp(1), (x * 100).logsumexp((0, 2))), (X,))),
    Case("softmax", lambda: (lambda x: (x.softmax(-1), x.log_softmax(1), (x * 1000).softmax(0)), (X,))),
    Case("softmax_of_a_masked_row", lambda: (lambda x: x.masked_fill(x < 9, float("-inf")).softmax(-1), (X,))),
    Case(
        "sum_over_no_axes", lambda: (lambda x, n: torch.where(x > 0, (n != 7).sum().float(), x), (X, torch.tensor(3)))
    ),
    Case("integers", lambda: (lambda x: (x.sum(0), x.amax(1), x.prod(0)), (TIES,))),
    Case(
        "any and all over axes",
        lambda: (
            lambda x: tuple(
                over(each, axes, keep)
                for over in (torch.ops.aten.any.dims, torch.ops.aten.all.dims)
                for each, axes, keep in ((x > 0, [0, 2], False), (x, None, True), (x.to(torch.uint8), [-1], False))
            ),
            (X,),
        ),
    ),
    Case(
        "products over axes",
        lambda: (
            lambda x: (torch.ops.prims.prod(x, [0, 2]), (x * 3).long().prod(1, dtype=torch.int32), (x > 0).prod(0)),
            (X,),
        ),
    ),
    Case("nothing", lambda: (lambda x: (x.sum(1), x.prod(1), x.any(1)), (torch.zeros(3, 0),))),
)
def test_reductions(case, output_type):
    check(case, output_type)


@table(
    Case("cumsum", lambda: (lambda x: (x.cumsum(0), x.cumsum(-1)), (X,))),
    Case("cumsum_of_integers", lambda: (lambda x: x.cumsum(1), (TIES,))),
    Case("cumprod", lambda: (lambda x: x.cumprod(1), (X,))),
    Case("cumsum_of_bytes", lambda: (lambda *given: [x.cumsum(0, dtype=x.dtype) for x in given], NARROW)),
    Case("running", lambda: (lambda x, t: (x.cummax(1), t.cummin(0), (x * 1000).logcumsumexp(1)), (X, TIES))),
    Case("sort_stable", lambda: (lambda x: x.sort(dim=0, stable=True), (TIES,))),
    Case("kthvalue", lambda: (lambda x: x.kthvalue(2, 1), (X,))),
    Case("mode", lambda: (lambda x: x.mode(0), (TIES,))),
    Case("median_along", lambda: (lambda x: (x.median(1), x.nanmedian(0)), (X,))),
    Case("searchsorted", lambda: (lambda x, y: (torch.searchsorted(x, y), torch.bucketize(x, y[0])), (ROWS, ROWS))),
    Case("isin", lambda: (lambda x: torch.isin(x, x[0]), (TIES,))),
    Case("sort", lambda: (lambda x: x.sort(-1), (X,))),
    Case("sort_descending", lambda: (lambda x: x.sort(1, descending=True), (X,))),
    Case("argsort", lambda: (lambda x: x.argsort(0), (X,))),
    Case("topk", lambda: (lambda x: x.topk(2), (X,))),
    Case("topk_smallest", lambda: (lambda x: x.topk(3, dim=2, largest=False), (X,))),
    Case(
        "prod_of_a_complex_vector",
        lambda: (lambda x: torch.view_as_real(x.prod(0, keepdim=True, dtype=torch.complex64)), (X[0, 0],)),
    ),
    Case("topk_of_rank_zero", lambda: (lambda x: (*x.topk(0), *x.topk(1, 0)), (torch.tensor(1.5),))),
    Case("median", lambda: (torch.median, (X,))),
)
def test_scans_and_sorts(case, output_type):
    check(case, output_type)
