"""Gradients of operators, as a joint graph holds them: each program lowers to every output type, linalg's runs.

`benchmarks.training_matrix` runs all of them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx

from fx_importer import UsageError, lower
from tests.e2e.harness import LINALG, STABLEHLO, TOSA, Case, check, integers, normal, table

aten = torch.ops.aten

Function = Callable[..., tuple[Tensor, ...]]


def gradients(function: Function) -> Callable[..., tuple[Tensor, ...]]:
    """Return a function that computes the gradients of the weighted results of ``function`` by its float inputs."""

    def differentiated(*inputs: Tensor) -> tuple[Tensor, ...]:
        given = [each.detach().requires_grad_() if each.is_floating_point() else each for each in inputs]
        results = function(*given)
        weights = [torch.arange(y.numel(), dtype=y.dtype).add(1).cos().reshape(y.shape) for y in results]
        return torch.autograd.grad(results, [each for each in given if each.requires_grad], weights)

    return differentiated


X, LINE, VOLUME = normal(2, 3, 7, 6), normal(2, 3, 9), normal(1, 2, 4, 5, 4)
MASK = torch.ones(4, 5, dtype=torch.bool).tril(1)
TOKENS = torch.tensor([[1, 4, 0], [2, 2, 5]])
BAGS = torch.tensor([1, 4, 0, 2, 2])
CHUNKS: Any = None
if hasattr(F, "linear_cross_entropy"):  # since torch 2.13
    CHUNKS = importlib.import_module("torch.nn.modules.linear_cross_entropy_options").LinearCrossEntropyOptions(
        batch_chunk_size=2
    )


def convolutions(x: Tensor, grouped: Tensor, line: Tensor, volume: Tensor, up: Tensor) -> tuple[Tensor, ...]:
    return (
        F.conv2d(x, grouped, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=3),
        F.conv1d(line, up.transpose(0, 1), stride=2),
        F.conv_transpose1d(line, up, stride=2, padding=1, output_padding=1),
        F.conv3d(volume, volume[:, :, :2, :2, :2], stride=2, padding=1),
    )


CASES: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "convolutions": (
        convolutions,
        (X, normal(6, 1, 3, 2), LINE, VOLUME, normal(3, 4, 3)),
    ),
    "average_pools": (
        lambda x, line, volume: (
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, (2, 3), ceil_mode=True, count_include_pad=False, padding=1),
            F.avg_pool2d(x, 2, divisor_override=3),
            F.avg_pool1d(line, 4, 2),
            F.avg_pool3d(volume, 2, padding=1),
            F.adaptive_avg_pool2d(x, (3, 4)),
        ),
        (X, LINE, VOLUME),
    ),
    "largest": (
        lambda x: (
            F.max_pool2d(x, 3, 2, 1),
            F.max_pool2d(x, (2, 3), stride=(1, 2), dilation=(2, 1), ceil_mode=True),
        ),
        (X,),
    ),
    "largest_of_volumes": (
        lambda x, volume: (F.max_pool3d(volume, 2, padding=1), F.adaptive_max_pool2d(x, (3, 4))),
        (X, VOLUME),
    ),
    "resizing": (
        lambda x, line: (
            F.interpolate(x, scale_factor=1.7),
            F.interpolate(x, size=(5, 9), mode="bilinear"),
            F.interpolate(x, size=(9, 9), mode="bicubic", align_corners=True),
            F.interpolate(line, scale_factor=2.0, mode="linear"),
        ),
        (X, LINE),
    ),
    "padding": (
        lambda x, line: (
            F.pad(x, (1, 2, 3, 0), mode="reflect"),
            F.pad(x, (1, 2, 3, 0), mode="replicate"),
            F.pad(x, (2, -1, 0, 1)),
            F.pad(line, (2, 3), mode="circular"),
        ),
        (X, LINE),
    ),
    "activations": (
        lambda x: (F.silu(x), F.mish(x), F.hardshrink(x), F.softshrink(x), F.gelu(x), F.softmax(x, 1)),
        (X,),
    ),
    "losses": (
        lambda x, y: (
            F.cross_entropy(x, torch.tensor([1, 0])),
            F.nll_loss(x, torch.tensor([1, 0]), weight=torch.tensor([1.0, 2.0, 0.5]), reduction="none"),
            F.cross_entropy(y, torch.tensor([[0, 2], [-100, 1]])),
            F.multi_margin_loss(x, torch.tensor([2, 1])),
            F.multilabel_margin_loss(x, torch.tensor([[2, -1, 0], [1, 0, -1]])),
        ),
        (normal(2, 3), normal(2, 3, 2)),
    ),
    "attention": (
        lambda q, k, v: (
            F.scaled_dot_product_attention(q, k, v, is_causal=True),
            F.scaled_dot_product_attention(q, k, v, attn_mask=MASK, scale=0.3),
            F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
        ),
        (normal(2, 2, 4, 3), normal(2, 2, 5, 3, seed=2), normal(2, 2, 5, 3, seed=3)),
    ),
    "distances": (
        lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, p=1.0), torch.cdist(x, y, p=3.0), F.pdist(x[0])),
        (normal(2, 4, 3), normal(2, 5, 3, seed=2)),
    ),
    "sampling": (
        lambda image, grid: (
            F.grid_sample(image, grid, align_corners=False),
            F.grid_sample(image, grid, padding_mode="border", align_corners=True),
            F.grid_sample(image, grid, padding_mode="reflection", align_corners=False),
            F.grid_sample(image, grid, mode="nearest", align_corners=True),
            image.masked_scatter(image > 0, grid),
        ),
        (normal(1, 2, 4, 5), normal(1, 6, 6, 2)),
    ),
    "volumes": (
        lambda volume, grid, image, places: (
            F.grid_sample(volume, grid, align_corners=False),
            F.grid_sample(volume, grid, mode="nearest", padding_mode="border", align_corners=True),
            F.grid_sample(image, places, mode="bicubic", padding_mode="reflection", align_corners=False),
            F.grid_sample(image, places, mode="bicubic", align_corners=True),
        ),
        (normal(2, 2, 2, 3, 2), normal(2, 1, 2, 3, 3), normal(1, 2, 3, 4), normal(1, 2, 3, 2, seed=2)),
    ),
    "segments": (
        lambda x, y: tuple(
            torch.segment_reduce(each, kind, lengths=torch.tensor([2, 0, 3]), initial=initial)
            for kind in ("sum", "mean", "max", "min", "prod")
            for each, initial in ((x, None), (y, 2.0))
        ),
        (
            torch.tensor([1.0, 3.0, 2.0, 2.0, -1.0]),
            torch.tensor([[0.0, 2.0], [1.5, 0.0], [0.0, 1.0], [3.0, 0.0], [2, 0]]),
        ),
    ),
    "determinants": (
        lambda a: (torch.linalg.det(a), torch.linalg.slogdet(a.mT)[1], torch.logdet(a @ a.mT + torch.eye(3))),
        (normal(2, 3, 3),),
    ),
    "linear_losses": (
        lambda x, weight, bias: tuple(
            F.linear_cross_entropy(
                x, weight, torch.tensor([2, 0, -100, 3]), linear_bias=bias, reduction=kind, weight=each, options=CHUNKS
            )
            for kind, each in (("mean", None), ("sum", torch.tensor([0.5, 1.0, 2.0, 1.5])))
        ),
        (normal(4, 3), normal(4, 3, seed=2), normal(4)),
    ),
    "bags": (
        lambda weight: (
            F.embedding_bag(BAGS, weight, torch.tensor([0, 2, 2]), mode="max"),
            F.embedding_bag(TOKENS, weight, mode="max", padding_idx=2),
            F.embedding_bag(TOKENS, weight.clone(), mode="sum"),
        ),
        (normal(6, 3),),
    ),
    "selections": (
        lambda x: (
            x.masked_select(torch.ones(4, 5).tril(1) > 0),
            torch.combinations(x[0], 2),
            torch.sgn(x),
            torch.block_diag(x[:1], x[1:]),
        ),
        (normal(4, 5),),
    ),
    "computed_places": (
        lambda x, at: (torch.narrow(x, 1, at, 2), x.index_select(0, at.reshape(1)), x.sum().index_select(0, at * 0)),
        (normal(4, 5), torch.tensor(2)),
    ),
    "embeddings": (
        lambda weight: (F.embedding(TOKENS, weight, padding_idx=2), F.embedding(torch.tensor(3), weight)),
        (normal(6, 3),),
    ),
}


@functools.lru_cache(maxsize=1)
def exported(case: str) -> ExportedProgram:
    """Return the joint graph of a case, exported once for its rows, which follow each other."""
    function, inputs = CASES[case]
    graph = make_fx(gradients(function), tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
    (program,) = lower(graph, *inputs, output_type="raw").exported.values()
    return program


@pytest.mark.slow_rows(
    "determinants|volumes",
    "(average_pools|largest|bags|distances|resizing|computed_places|sampling)-tosa",
    "(resizing|losses|activations|padding|segments|computed_places|sampling|largest)-stablehlo",
    "^segments-tosa$",
    "^attention-tosa$",
    "^average_pools-stablehlo$",
    "^attention-stablehlo$",
    "^losses-tosa$",
    "^bags-stablehlo$",
    "^distances-stablehlo$",
    "^embeddings-tosa$",
    "^activations-tosa$",
    "^convolutions-stablehlo$",
    "^linear_losses-tosa$",
    "^selections-stablehlo$",
    "^selections-tosa$",
    "^convolutions-tosa$",
    "^padding-tosa$",
    "^(sampling|segments|computed_places|average_pools|distances)-linalg",
    "^(padding|linear_losses)-",
    "^largest-linalg",
)
@pytest.mark.parametrize("output_type", [LINALG, TOSA, STABLEHLO], ids=lambda each: each.value)
@pytest.mark.parametrize("case", CASES)
def test_gradients(case: str, output_type: Any) -> None:
    if case == "linear_losses" and CHUNKS is None:
        pytest.skip("torch 2.12 has no linear_cross_entropy")
    function, inputs = CASES[case]
    backward = gradients(function)
    lowered = lower(exported(case), output_type=output_type)
    if output_type is LINALG:
        torch.testing.assert_close(lowered.run(*inputs), backward(*inputs), rtol=1e-4, atol=1e-5)


PLACES = integers(2, 3, 3, 3, low=0, high=42)
DYNAMIC = {0: torch.export.Dim.DYNAMIC}


def scattered(grad: Tensor, x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
    pool = aten.max_pool2d_with_indices_backward
    return (
        pool(grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, at),
        pool(grad[0], x[0], [2, 2], [2, 2], [0, 0], [1, 1], False, at[0]),
        aten.adaptive_max_pool2d_backward(grad, x, at),
    )


def one_sample(grad: Tensor, x: Tensor, label: Tensor, labels: Tensor, weight: Tensor, total: Tensor):
    return [
        aten.nll_loss_backward(grad, x, each, scale, reduction, ignored, total)
        for each, scale, ignored in ((label, None, -100), (label, weight, 1), (labels, weight, -100))
        for reduction in (0, 1, 2)
    ]


def statistics(grad: Tensor, at: Tensor, x: Tensor, labels: Tensor, of: Tensor, q: Tensor, k: Tensor, total: Tensor):
    """Return gradients that read what forward operators return: bags and their sizes, classes, sums of exponentials."""
    starts, bags, sizes, none = torch.tensor([0, 2, 2]), torch.tensor([1, 1, 0, 0, 2]), torch.tensor([2, 0, 3]), at[:3]
    attention = aten._scaled_dot_product_flash_attention_for_cpu_backward
    return (
        aten._embedding_bag_backward(grad, at, starts, bags, sizes, none, 6, False, 0, False, None),
        aten._embedding_bag_backward(grad, at, starts, bags, sizes, none, 6, False, 1, False, None),
        aten._embedding_bag_per_sample_weights_backward(grad, x, at, starts, bags, 0),
        aten.multilabel_margin_loss_backward(torch.ones(()), x[:2], labels, 1, of),
        *attention(k, q, k, k, q, total, 0.0, False),
    )


@pytest.mark.slow_rows(
    "^indices_of_dynamic_batch-stablehlo$",
    "^indices_of_dynamic_batch-tosa$",
    "^statistics-tosa$",
    "^statistics-stablehlo$",
    "^one_sample-tosa$",
    "^indices-tosa$",
)
@table(
    Case("indices", lambda: (scattered, (normal(2, 3, 3, 3), X, PLACES))),
    Case(
        "indices_of_dynamic_batch",
        lambda: (scattered, (normal(2, 3, 3, 3), X, PLACES)),
        dynamic_shapes=(DYNAMIC,) * 3,
        others=lambda: ((normal(3, 3, 3, 3), normal(3, 3, 7, 6), integers(3, 3, 3, 3, low=0, high=42)),),
    ),
    Case(
        "sixths",
        lambda: (
            lambda grad, x: (aten.hardsigmoid_backward(grad, x), aten.hardsigmoid_backward(grad.half(), x.half())),
            (normal(9, dtype=torch.float64), torch.linspace(-4, 4, 9, dtype=torch.float64)),
        ),
        tolerance=(1e-12, 0),
        fails={TOSA: "f64"},
    ),
    Case(
        "one_sample",
        lambda: (
            one_sample,
            (normal(1), normal(3), torch.tensor(1), torch.tensor([2, 0, 1]), normal(3), torch.tensor(1.5)),
        ),
    ),
    Case(
        "statistics",
        lambda: (
            statistics,
            (
                *(normal(3, 2), torch.tensor([1, 2, 4, 1, 0]), normal(6, 2)),
                *(torch.tensor([[1, -1], [1, 0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]])),
                *(normal(1, 1, 2, 4), normal(1, 1, 2, 4, seed=2), normal(1, 1, 2)),
            ),
        ),
    ),
)
def test_arguments_from_elsewhere(case, output_type):
    check(case, output_type)


def resized_missing(grad: Tensor) -> tuple[Tensor, ...]:
    of = [grad.shape[0], 1, grad.shape[2] + 1, 3]
    return (
        aten.upsample_nearest2d_backward(grad, grad.shape[2:], of),
        aten.upsample_bilinear2d_backward(
            grad[:1, :, :2], [2, 4], [1, 1, 3, 3], False
        ),  # torch does not export dynamic sizes
    )


def missing(rows: int) -> Tensor:
    grad = torch.ones(1, 1, rows, 4)
    grad[..., -1, 0], grad[..., 0, 1], grad[..., 0, 3] = float("nan"), float("inf"), -float("inf")
    return grad


@pytest.mark.slow_rows("-(tosa|stablehlo)$")
@table(
    Case(
        "missing_gradients",
        lambda: (resized_missing, (missing(2),)),
        dynamic_shapes=({0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO},),
        others=lambda: ((missing(4),),),
    ),
)
def test_missing_gradients_stay_where_eager_adds_them(case, output_type):
    check(case, output_type)


def dilated(x: Tensor) -> Tensor:
    settings = [3, 3], [2, 2], [0, 0], [1, 2], True
    values, indices = aten.max_pool2d_with_indices(x, *settings)
    return aten.max_pool2d_with_indices_backward(values.exp(), x, *settings, indices)


def test_max_pool_of_dynamic_sizes():
    sizes = {2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    lowered = lower(dilated, normal(1, 2, 8, 11), output_type=LINALG, dynamic_shapes=(sizes,))
    for x in (normal(1, 2, 3, 6), normal(1, 2, 8, 11)):
        torch.testing.assert_close(lowered.run(x), dilated(x))
    of_one = lower(dilated, normal(1, 2, 3, 6), output_type=LINALG, dynamic_shapes=(sizes,))
    torch.testing.assert_close(of_one.run(normal(1, 2, 2, 6)), dilated(normal(1, 2, 2, 6)))
    with pytest.raises(
        UsageError, match="has size 8 .* sizes from 2 to 3"
    ):  # a guard of torch.export says that the pool has one row
        of_one.run(normal(1, 2, 8, 11))
