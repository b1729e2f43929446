"""Operators with shape-generic rules: one compiled program, run with other sizes than the example's."""

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from .harness import LINALG, STABLEHLO, Case, check, integers, normal

ANY = Dim.DYNAMIC
ALL = {0: ANY, 1: ANY}
IMAGE = {0: ANY, 2: ANY, 3: ANY}


def of_images(name, compute):
    """Rows with batches of images of dynamic size."""
    return Case(
        name,
        lambda: (compute, (normal(2, 3, 8, 8),)),
        dynamic_shapes=(IMAGE,),
        others=lambda: [(normal(3, 3, 16, 16),), (normal(1, 3, 9, 11),), (normal(2, 3, 10, 7),)],
    )


def of_rows(name, compute, dynamic=ALL):
    """Rows with matrices of dynamic size."""
    others = [(normal(3, 7),), (normal(5, 12),)] if dynamic is ALL else [(normal(5, 4),), (normal(1, 4),)]
    return Case(name, lambda: (compute, (normal(3, 4),)), dynamic_shapes=(dynamic,), others=lambda: others)


def of_masks(seed):
    return integers(3, 4, low=0, high=2, seed=seed).bool()


CASES = [
    of_images("adaptive-average", lambda x: F.adaptive_avg_pool2d(x, (5, 7))),
    of_images("adaptive-average-of-one-axis", lambda x: F.adaptive_avg_pool2d(x, (1, 3))),
    of_images("adaptive-largest", lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True)),
    of_images("area", lambda x: F.interpolate(x, (5, 3), mode="area")),
    of_images("nearest-by-two", lambda x: F.interpolate(x, scale_factor=2.0)),
    of_images("nearest-by-a-half", lambda x: F.interpolate(x, scale_factor=0.6)),
    of_images("nearest-to-a-size", lambda x: F.interpolate(x, (5, 13))),
    of_images("nearest-exact", lambda x: F.interpolate(x, (5, 13), mode="nearest-exact")),
    of_images("windows-as-columns", lambda x: F.unfold(x, (3, 2), padding=1, stride=2)),
    of_images("padded", lambda x: F.pad(x, (1, 2, 0, -1), value=3.0)),
    of_rows("running-product", lambda x: x.cumprod(1)),
    of_rows("running-product-of-rows", lambda x: x.cumprod(0), {0: ANY}),
    of_rows("running-log-sum", lambda x: x.logcumsumexp(1)),
    of_rows("diagonal", lambda x: (x.diagonal(), x.diagonal(1), x.diagonal(-1))),
    of_rows("trace", lambda x: x @ x.t() + x.diagonal().sum()),
    of_rows("median", lambda x: x.median(1), {0: ANY}),
    Case(
        "grid-sample",
        lambda: (
            lambda x, grid: F.grid_sample(x, grid, padding_mode="reflection", align_corners=False),
            (normal(2, 3, 6, 5), normal(2, 4, 3, 2)),
        ),
        dynamic_shapes=(IMAGE, {0: ANY, 1: ANY, 2: ANY}),
        others=lambda: [(normal(1, 3, 4, 9), normal(1, 7, 2, 2)), (normal(3, 3, 5, 5), normal(3, 4, 3, 2))],
    ),
    Case(
        "is-in",
        lambda: (lambda x, others: torch.isin(x, others), (integers(3, 4, low=0, high=9), integers(5, low=0, high=9))),
        dynamic_shapes=(ALL, {0: ANY}),
        others=lambda: [(integers(2, 7, low=0, high=9), integers(3, low=0, high=9))],
    ),
    Case(
        "searched",
        lambda: (lambda edges, x: torch.searchsorted(edges, x), (normal(6).sort()[0], normal(3, 4))),
        dynamic_shapes=({0: ANY}, ALL),
        others=lambda: [(normal(9).sort()[0], normal(2, 7))],
    ),
    Case(
        "counted-between",
        lambda: (lambda x: torch.histc(x, 5, -2.0, 2.0), (normal(30),)),
        dynamic_shapes=({0: ANY},),
        others=lambda: [(normal(7),), (normal(64),)],
    ),
    Case(
        "bags",
        lambda: (
            lambda indices, offsets, weight: F.embedding_bag(indices, weight, offsets, mode="mean"),
            (integers(8, low=0, high=10), torch.tensor([0, 3, 5]), normal(10, 4)),
        ),
        dynamic_shapes=({0: ANY}, {0: ANY}, {}),
        others=lambda: [(integers(5, low=0, high=10), torch.tensor([0, 2]), normal(10, 4))],
    ),
    of_rows("running-maximum", lambda x: x.cummax(1)),
    of_rows("running-minimum-of-rows", lambda x: x.cummin(0), {0: ANY}),
    Case(
        "masked-scatter",
        lambda: (lambda x, mask, source: x.masked_scatter(mask, source), (normal(3, 4), of_masks(1), normal(12))),
        dynamic_shapes=({0: ANY}, {0: ANY}, {0: ANY}),
        others=lambda: [(normal(3, 4), of_masks(2), normal(20))],
    ),
]


@pytest.mark.slow_rows(
    "(grid-sample|area|nearest-by-two|nearest-by-a-half|nearest-to-a-size|adaptive-largest|of-one-axis)-stablehlo",
    "(running|windows|diagonal|trace|counted).*-stablehlo",
    "(grid-sample|nearest-by-two|running-minimum-of-rows)-linalg",
    "^adaptive-average-stablehlo$",
    "^nearest-exact-stablehlo$",
    "^padded-stablehlo$",
    "^median-stablehlo$",
    "^searched-stablehlo$",
    "^bags-stablehlo$",
    "^masked-scatter-stablehlo$",
    "^is-in-stablehlo$",
    "^(adaptive-average-of-one-axis|area|adaptive-largest|bags)-linalg",
)
@pytest.mark.parametrize("output_type", [LINALG, STABLEHLO], ids=lambda each: each.value)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_sizes_than_the_examples(case, output_type):
    check(case, output_type)
