"""Indexing: reads and writes of parts of tensors."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from fx_importer import lower

from .harness import LINALG, Case, assert_same, check, integers, normal, table

X = normal(4, 5, 6)
ROWS = torch.tensor([2, 0, 3, 2])
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")

pytestmark = pytest.mark.filterwarnings("ignore:.*(beta|deprecated)")


def write(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:3, :, ::2] = 7
    x[0] += 1
    return x


def indexed_by_a_number(x, rows, i, source):
    written = x.scatter(0, i, source), x.scatter(-1, i, source[0]), x.scatter(0, i, 2.5), x.scatter_add(0, i, source)
    reduced = x.scatter_reduce(0, i, source, "amax"), x.index_add(0, i, source[:1])
    return *written, *reduced, x.gather(0, i), rows.index_select(1, i.clamp(max=3))


@pytest.mark.slow_rows(
    "^scatter_add-tosa$",
    "^flat-tosa$",
    "^index_put_of_a_number-tosa$",
    "^scatter_reduce-tosa$",
    "^index_fill_of_permuted-tosa$",
    "^nonzero_static-tosa$",
    "^index_put_accumulate-tosa$",
    "^index_put-tosa$",
    "^nonzero_static-stablehlo$",
    "^(index_of_rank_0|index_put_at_axes_apart|repeats)-tosa",
)
@table(
    Case(
        "index_fill_of_permuted",
        lambda: (lambda x, i: torch.index_fill(x.permute(2, 1, 0), 2, i, 7.0), (normal(2, 3, 2), torch.tensor([1, 0]))),
    ),
    Case("slices", lambda: (lambda x: (x[1:3], x[:, ::2], x[..., -2:]), (X,))),
    Case("empty_slices", lambda: (lambda x: (x[:, 4:1], x[9:]), (X,))),
    Case("selections", lambda: (lambda x: (x[1], x[:, -1], x[0, 2, 3], x[None, :, 0]), (X,))),
    Case("by_tensor", lambda: (lambda x, i: (x[i], x[:, i], x[..., i]), (X, ROWS))),
    Case("by_negative_numbers", lambda: (lambda x, i: x[i - 4], (X, ROWS))),
    Case("by_two_tensors", lambda: (lambda x, i: (x[i, i], x[i[:, None], i], x[i, :, i]), (X, ROWS))),
    Case("index_select", lambda: (lambda x, i: x.index_select(1, i), (X, ROWS))),
    Case("gather", lambda: (lambda x, i: x.gather(1, i), (X, integers(4, 2, 6, low=0, high=5)))),
    Case("take_along_dim", lambda: (lambda x: x.take_along_dim(x.argsort(-1), -1), (normal(3, 4),))),
    Case(
        "scatter",
        lambda: (lambda x, i: x.scatter(0, i, x[:2] * 10), (normal(4, 3), torch.tensor([[0, 1, 2], [3, 2, 1]]))),
    ),
    Case(
        "scatter_add",
        lambda: (lambda x, i: x.scatter_add(0, i, x[:2]), (normal(4, 3), torch.tensor([[0, 1, 2], [0, 2, 1]]))),
    ),
    Case(
        "scatter_add_last",
        lambda: (lambda x, i: x.scatter_add(-1, i, x), (normal(3, 3), torch.tensor([[0, 1, 2], [0, 2, 1], [1, 1, 1]]))),
    ),
    Case(
        "index_add",
        lambda: (lambda x, i: x.index_add(0, i, x, alpha=2), (X, ROWS)),
    ),
    Case(
        "index_put_of_a_number",
        lambda: (
            lambda x, i: (
                x.index_put((i,), x[0]),
                x[0, 0].index_put((i,), x[0, 0, 0], accumulate=True),
                torch.zeros(()).index_add(0, i * 0, x.sum()),
                torch.ops.aten.index_put(x, [None, i], x[:, 0]),
            ),
            (X, torch.tensor(2)),
        ),
    ),
    Case("index_put", lambda: (lambda x, i: x.index_put((i,), x[:3] + 1), (X, torch.tensor([3, 1, 0])))),
    Case(
        "index_put_accumulate",
        lambda: (lambda x, i: x.index_put((i,), x, accumulate=True), (X, ROWS)),
    ),
    Case(
        "scatter_reduce",
        lambda: (
            lambda x, i: [x.scatter_reduce(0, i, x, kind, include_self=kind != "mean") for kind in REDUCTIONS],
            (normal(3, 3), torch.tensor([[0, 1, 2], [0, 2, 1], [0, 1, 1]])),
        ),
    ),
    Case(
        "index_copy_of_rank_0",
        lambda: (
            lambda x, i, y: (x[0].index_copy(0, i, y), x.index_copy(0, i[0], y)),
            (normal(1), integers(1, low=0, high=1), normal(1)[0]),
        ),
    ),
    Case(
        "index_of_rank_0",
        lambda: (indexed_by_a_number, (normal(4), integers(1, 4, low=-9, high=9).int(), torch.tensor(2), normal(4))),
        dynamic_shapes=({0: Dim.DYNAMIC}, None, None, {0: Dim.DYNAMIC}),
        others=lambda: [(normal(6), integers(1, 4, low=-9, high=9).int(), torch.tensor(4), normal(5))],
    ),
    Case("index_reduce", lambda: (lambda x, i: x.index_reduce(0, i, x, "amax"), (X, ROWS))),
    Case("scatter_times", lambda: (lambda x: x.scatter(0, ROWS[None, :3], 2.5, reduce="multiply"), (normal(4, 3),))),
    Case("flat", lambda: (lambda x, i: (x.take(i - 4), x.put(i, x[0, 0, :4], accumulate=True)), (X, ROWS))),
    Case("take_from_a_number", lambda: (torch.take, (torch.tensor(2.0), torch.tensor([0, -1])))),
    Case(
        "index_put_by_mask",
        lambda: (
            lambda x, m: (x.index_put((m,), x[0, 0, 0]), x.index_put((x[:, 0, 0] < 9,), x, accumulate=True)),
            (X, X > 0),
        ),
    ),
    Case("nonzero_static", lambda: (lambda x: torch.nonzero_static(x > 0, size=70), (X,))),
    Case("repeats", lambda: (lambda x, i: x.repeat_interleave(i, 0, output_size=9), (X, ROWS + torch.arange(4) % 2))),
    Case("written_slices", lambda: (write, (X,))),
    Case(
        "index_put_at_axes_apart",
        lambda: (
            lambda x, i, j: (
                torch.ops.aten.index_put(x, [i, None, j], x[:2, :, 0] + 1),
                torch.ops.aten.index_put(x, [i.unsqueeze(1), None, j], x[0, :, 0], accumulate=True),
                torch.ops.aten.index_put(x, [i[0], None, j[1]], x[0, :, 0]),
            ),
            (X, torch.tensor([-1, 0]), torch.tensor([1, -2])),
        ),
    ),
    Case("written_from_the_end", lambda: (lambda x, i: x.index_put((i,), x[:1]), (X, torch.tensor([-1, 0])))),
    Case("select_scatter", lambda: (lambda x: (x.select_scatter(x[0], 0, 2), x.slice_scatter(x[:2], 0, 1, 3)), (X,))),
    Case("masked_fill", lambda: (lambda x: x.masked_fill(x > 0, -1.0), (X,))),
    Case("one_hot", lambda: (lambda i: F.one_hot(i, 4), (ROWS,))),
    Case("flip_and_roll", lambda: (lambda x: (x.flip(0, 2), x.roll(1, 1), x.roll((-1, 2), (0, 2))), (X,))),
    Case("diagonals", lambda: (lambda x: (x.diagonal(), x[0].diagonal(1), torch.diag_embed(x[0, 0])), (X,))),
)
def test_indexing(case, output_type):
    check(case, output_type)


TOKENS = integers(2, 3, low=0, high=10)


class Positions(nn.Module):
    """Token and position embeddings, as at the start of language models."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(10, 4), nn.Embedding(8, 4)
        self.order: torch.Tensor
        self.register_buffer("order", torch.arange(8).expand(1, -1), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.tokens(tokens) + self.positions(self.order[:, : tokens.shape[1]])


def writes_and_repeats(x: torch.Tensor, i: torch.Tensor):
    return x.index_put((i,), x.new_ones(())), x.repeat(2, 1), x.T.index_copy(1, i, x.T[:, : i.shape[0]])


def bags(weight: torch.Tensor, indices: torch.Tensor, scale: torch.Tensor):
    """Return all results of embedding_bag: empty bags, a last offset before the end, padding, and scaled rows."""
    return [
        torch.ops.aten._embedding_bag(weight, indices, torch.tensor(at), False, mode, False, each, last, padding)
        for mode, scales in ((0, (None, scale)), (1, (None,)), (2, (None,)))
        for last, at in ((False, [0, 0, 4]), (True, [0, 2, 2, 6]))
        for padding in (-1, 4)
        for each in scales
    ]


@pytest.mark.slow_rows(
    "^embedding_of_bounded_rows-(linalg|stablehlo)",
    "^bags-tosa$",
    "^bags-stablehlo$",
    "^bag_mean-tosa$",
    "^bag-tosa$",
    "^bag_of_weighted-tosa$",
    "^bag_max-tosa$",
    "^bags-linalg",
)
@table(
    Case("bags", lambda: (bags, (normal(10, 3), torch.tensor([1, 2, 4, 5, 4, 3, 2]), normal(7)))),
    Case("embedding", lambda: (nn.Embedding(10, 4, padding_idx=0), (TOKENS,))),
    Case(
        "embedding_of_flags",
        lambda: (lambda i, w: F.embedding(i, w, 0, sparse=True, scale_grad_by_freq=True), (TOKENS, normal(10, 4))),
        dynamic_shapes=({1: Dim.DYNAMIC}, {}),
    ),
    Case(
        "writes_at_no_rows",
        lambda: (
            writes_and_repeats,
            (normal(5, 4), integers(2, low=0, high=5)),
        ),
        dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC}),
        others=lambda: [(normal(5, 4), integers(0, low=0, high=1)), (normal(5, 0), integers(2, low=0, high=5))],
    ),
    Case(
        "embedding_of_bounded_rows",
        lambda: (lambda i, w: F.embedding(i, w * 2, max_norm=1.0), (TOKENS, normal(10, 4))),
        dynamic_shapes=({1: Dim.DYNAMIC}, {}),
        others=lambda: [(integers(2, 5, low=0, high=10), normal(10, 4))],
    ),
    Case("embedding_of_int32", lambda: (nn.Embedding(10, 4), (TOKENS.int(),))),
    Case("positions", lambda: (Positions(), (TOKENS,))),
    Case("bag", lambda: (nn.EmbeddingBag(10, 4, mode="sum"), (TOKENS,))),
    Case("bag_of_weighted", lambda: (nn.EmbeddingBag(10, 4, mode="sum"), (TOKENS, None, normal(2, 3)))),
    Case("bag_mean", lambda: (nn.EmbeddingBag(10, 4, padding_idx=2), (TOKENS[0], torch.tensor([0, 0, 2])))),
    Case("bag_max", lambda: (nn.EmbeddingBag(10, 4, mode="max"), (TOKENS,))),
)
def test_embedding(case, output_type):
    check(case, output_type)


DATA_DEPENDENT = {
    "masked_elements": lambda x: x[x > 0],
    "masked_rows": lambda x: (x[:, x[0, :, 0] > 0], x[x[:, 0, 0] > 0]),
    "masked_select": lambda x: x.masked_select(x[0] > 0),
    "places": lambda x: x[tuple((x > 0).nonzero().t())],
    "nonzero_of_a_number": lambda x: x[0, 0, 0].nonzero(),
    "unique": lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "unique_flags": lambda x: torch.unique(x > 0),
    "unique_consecutive": lambda x: torch.unique_consecutive(x > 0, return_inverse=True, return_counts=True),
    "unique_consecutive_slices": lambda x: torch.unique_consecutive(x[:2, :, :1] > 0, True, True, dim=-2),
    "weighted_counts": lambda x: torch.bincount((x[0, 0] > 0).int() * 2, x[1, 0], minlength=2),
    "repeated_rows": lambda x: x.repeat_interleave((x[:, 0, 0] > 0) * torch.arange(1, len(x) + 1), 0),
    "repeated_numbers": lambda x: torch.repeat_interleave((x[0].flatten() * 3).to(torch.int32).clamp(0)),
}


@pytest.mark.slow_rows(
    "^places$",
    "^masked_rows$",
    "^unique$",
    "^unique_consecutive$",
    "^masked_elements$",
    "^(repeated_rows|unique_flags)",
)
@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_results_of_data_dependent_size(name):
    function = DATA_DEPENDENT[name]
    lowered = lower(function, X, output_type=LINALG)
    for x in (X, -X):
        assert_same(lowered.run(x), function(x), None)
