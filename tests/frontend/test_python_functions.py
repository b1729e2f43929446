"""Functions of torch in Python, and checks of sizes that a dynamic range does not imply."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from fx_importer import lower
from fx_importer.errors import FxImporterError
from fx_importer.frontend.export import export_program
from fx_importer.frontend.python_functions import ctc_loss
from fx_importer.options import ExportOptions

LENGTH = ({1: Dim("length", min=4, max=64)},)

DYNAMIC: dict[str, Callable[..., Any]] = {
    "max_pool1d": lambda x: F.max_pool1d(x, 2, stride=1, padding=1),
    "max_pool1d_by_name": lambda x: F.max_pool1d(input=x, kernel_size=3),
    "max_pool1d_with_indices": lambda x: F.max_pool1d(x, 2, 2, 0, 1, False, True)[1],
    "linspace": lambda x: x + torch.linspace(-1, 2, x.shape[1]),
    "linspace_float64": lambda x: torch.linspace(3, 2, steps=x.shape[1], dtype=torch.float64),
    "cov": lambda x: torch.cov(input=x),
    "cov_of_integers": lambda x: (x * 4).long().cov(correction=0),
    "cov_of_a_vector": lambda x: torch.cov(x[0]),
    "corrcoef": torch.corrcoef,
    "corrcoef_of_a_vector": lambda x: torch.corrcoef(x[0]),
    "combinations": lambda x: torch.combinations(x[:, 0]),
    "ctc_loss": lambda x: F.ctc_loss(x.log_softmax(1), torch.tensor([1, 2]), torch.tensor(3), torch.tensor(2)),
    "tensor": lambda x: torch.tensor([[x.max(), 1], [2, x.argmin()]]),
    "tensor_of_integers": lambda x: torch.tensor([x.argmax(), 3]),
    "tensor_of_a_dtype": lambda x: torch.tensor([x.argmax(), True, 7], dtype=torch.int32),
    "tensor_of_two_dtypes": lambda x: torch.tensor([x.max().double(), x.argmax(), 2.5]),
    "as_tensor": lambda x: torch.as_tensor((x.min() > 0, x.max() > 0)),
    "combinations_with_replacement": lambda x: torch.combinations(x[:, 1], 3, with_replacement=True),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_functions_in_python_equal_eager(name: str) -> None:
    f = DYNAMIC[name]
    program = export_program(f, (torch.randn(3, 8),), {}, ExportOptions(dynamic_shapes=LENGTH))
    for length in (8, 5, 4):
        x = torch.randn(3, length)
        torch.testing.assert_close(program.module()(x), f(x))


def test_linspace_of_one_step_starts_at_the_start() -> None:
    program = export_program(
        lambda x: x * torch.linspace(2, 5, x.shape[0]), (torch.ones(4),), {}, ExportOptions(dynamic_shapes=({0: "n"},))
    )
    for n in (1, 2, 3):
        torch.testing.assert_close(program.module()(torch.ones(n)), torch.linspace(2, 5, n))


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_cov_with_weights_equals_eager(output_type: str) -> None:
    def f(x: torch.Tensor, counts: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = torch.cov(x, correction=2, fweights=counts, aweights=weights)
        return both, x[0].cov(fweights=counts), x.cov(aweights=weights)

    inputs = torch.randn(3, 5), torch.tensor([1, 0, 2, 3, 1]), torch.rand(5)
    lowered = lower(f, *inputs, output_type=output_type)
    torch.testing.assert_close(lowered.run(*inputs), f(*inputs))
    results = lowered.run(inputs[0], torch.tensor([1, -1, 2, 3, 1]), torch.zeros(5))  # torch refuses both
    assert all(result.isnan().all() for result in results)


CHECKED: dict[str, tuple[Callable[..., Any], int]] = {
    "pairs": (lambda x: x.view(3, -1, 2).sum(-1), 7),
    "split": (lambda x: x.tensor_split(3, 1)[1], 12),
    "ceil_mode": (lambda x: F.max_pool2d(x[None, :, :, None], (3, 1), ceil_mode=True), 0),
    "differences": (torch.diff, 0),
}
"""Functions, with a length for which they may not run as traced."""


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
@pytest.mark.parametrize("name", CHECKED)
def test_sizes_that_the_range_does_not_imply_are_checked_in_the_call(name: str, output_type: str) -> None:
    f, other = CHECKED[name]
    lowered = lower(f, torch.randn(3, 8), output_type=output_type, dynamic_shapes=({1: Dim("length", max=64)},))
    for length in (8, 14, other) if other else (8, 9, 14):
        x = torch.randn(3, length)
        if length == other:
            with pytest.raises(FxImporterError, match=r"exported for sizes with .*args\[0\]\.shape\[1\]"):
                lowered.run(x)
        else:
            torch.testing.assert_close(lowered.run(x), f(x))


@pytest.mark.parametrize("form", ["padded", "concatenated", "lists", "one"])
def test_ctc_loss_and_its_gradients_equal_those_of_torch(form: str) -> None:
    torch.manual_seed(0)
    for (steps, batch, labels), reduction, zero, blank in itertools.product(
        [(6, 3, 2), (2, 2, 3), (1, 1, 1), (3, 2, 0)], ["none", "mean", "sum"], [False, True], [0, 3]
    ):
        batch = 1 if form == "one" else batch
        others = torch.tensor([label for label in range(4) if label != blank])
        targets = others[torch.randint(0, 3, (batch, labels))]
        ends, counts = torch.randint(max(steps - 2, 0), steps + 1, (batch,)), torch.randint(0, labels + 1, (batch,))
        if form in ("concatenated", "one"):
            targets = torch.cat([row[:count] for row, count in zip(targets, counts, strict=True)])
        lengths = (ends.tolist(), counts.tolist()) if form == "lists" else (ends, counts)
        shape = (steps, 4) if form == "one" else (steps, batch, 4)
        scores = [torch.randn(shape, generator=torch.Generator().manual_seed(1)).log_softmax(-1) for _ in range(2)]
        arguments = targets, *lengths, blank, reduction, zero
        functions: list[Callable[..., Any]] = [F.ctc_loss, ctc_loss]
        losses = [f(leaf.requires_grad_(), *arguments) for f, leaf in zip(functions, scores, strict=True)]
        torch.testing.assert_close(losses[1], losses[0])
        if losses[0].isfinite().all():
            gradients = [torch.autograd.grad(loss.sum(), leaf)[0] for loss, leaf in zip(losses, scores, strict=True)]
            torch.testing.assert_close(gradients[1], gradients[0])


def test_ctc_loss_of_lengths_that_do_not_fit_is_nan() -> None:
    scores, targets = torch.zeros(3, 1, 4), torch.ones(1, 2, dtype=torch.int64)
    for ends, counts in ([4], [2]), ([3], [3]), ([-1], [2]), ([3], [-1]):
        assert ctc_loss(scores, targets, ends, counts).isnan()
    assert ctc_loss(scores, targets, [3, 3], [2]) is NotImplemented
    assert ctc_loss(scores, targets, [3], [2], blank=4) is NotImplemented
    assert ctc_loss(scores, targets, [3], [2], reduction="average") is NotImplemented


def of_selected_rows(x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = x[mask]
    differences = rows.diff(dim=0), torch.diff(rows, n=2, dim=0, prepend=x[:1]), rows.diff(dim=1)
    distances = torch.cdist(rows, x), torch.cdist(x, rows, p=1.0), torch.cdist(rows, rows)
    return *differences, *rows.cummax(0), torch.cummin(rows, 0).values, *distances


def test_functions_of_selections_that_may_be_empty() -> None:
    x = torch.tensor([[0.5, 2.0], [1.0, -1.0], [0.0, 3.0]])
    masks = [torch.tensor(mask) for mask in ([True, False, True], [False] * 3, [False, True, False], [True] * 3)]
    caller = lower(of_selected_rows, x, masks[0], output_type="linalg").caller(backend="jit")
    for mask in masks:
        torch.testing.assert_close(caller(x, mask), of_selected_rows(x, mask))


def of_selected_integers(x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = x[mask]
    return rows.median(), rows.int().nanmedian(), rows.short().median()


def test_medians_of_no_integers() -> None:
    x = torch.tensor([[5, 2], [1, -1], [0, 3]])
    masks = [torch.tensor(mask) for mask in ([True, False, True], [False] * 3, [False, True, False])]
    caller = lower(of_selected_integers, x, masks[0], output_type="linalg").caller(backend="jit")
    for mask in masks:
        torch.testing.assert_close(caller(x, mask), of_selected_integers(x, mask))


@pytest.mark.parametrize("output_type", ["linalg", "tosa", "stablehlo"])
def test_median_of_integers_of_dynamic_size(output_type: str) -> None:
    x = torch.tensor([[5, 2], [1, -1], [0, 3]])
    sizes = ({0: Dim.DYNAMIC},)
    caller = lower(torch.median, x, output_type=output_type, dynamic_shapes=sizes).caller(backend="jit")
    for rows in (3, 2):
        assert caller(x[:rows]) == torch.median(x[:rows])
