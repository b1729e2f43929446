"""Writes through windows: elements that no window covers stay as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fx_importer import lower
from fx_importer.errors import UnsupportedProgramError

X = torch.arange(14.0).reshape(2, 7) + 1

WRITES: dict[str, Callable[[Tensor], object]] = {
    "rest": lambda z: z.unfold(1, 2, 2).mul_(2),
    "gaps": lambda z: z.unfold(1, 2, 3).add_(1),
    "one window": lambda z: z.unfold(1, 2, 2)[:, 1].mul_(3),
    "chunk": lambda z: z.unfold(1, 2, 2).chunk(2, 1)[0].neg_(),
    "transposed": lambda z: z.t().unfold(0, 2, 3).transpose(0, 1).sub_(1),
    "windows of windows": lambda z: z.unfold(1, 2, 2).unfold(1, 1, 1).add_(1),
    "part of overlapping windows": lambda z: z.unfold(1, 2, 1)[..., 0].mul_(2),
    "one number": lambda z: z.unfold(1, 3, 2).fill_(5.0),
    "as_strided": lambda z: z.as_strided((2, 3, 3), (7, 2, 1), 0).select(2, 0).mul_(2),
}


def written(write: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    def model(x: Tensor) -> Tensor:
        z = x.clone()
        write(z)
        return z

    return model


@pytest.mark.parametrize("name", WRITES)
def test_elements_outside_of_windows(name: str) -> None:
    model = written(WRITES[name])
    assert torch.equal(lower(model, X, output_type="linalg-on-tensors").run(X), model(X))


def test_dynamic_sizes() -> None:
    half = torch.export.Dim("half", min=2)
    model = written(WRITES["rest"])
    lowered = lower(model, X, output_type="linalg-on-tensors", dynamic_shapes=({1: 2 * half + 1},))
    for x in (X, torch.rand(2, 5), torch.rand(2, 11)):
        assert torch.equal(lowered.run(x), model(x))


def test_order_of_overlapping_windows() -> None:
    with pytest.raises(UnsupportedProgramError, match="windows of unfold that overlap, share memory"):
        lower(written(lambda z: z.unfold(1, 2, 1).mul_(2)), X, output_type="linalg-on-tensors")


def test_memory_that_an_operator_writes_twice() -> None:
    def twice(x: Tensor) -> Tensor:
        z = x.clone()
        torch.ops.aten._foreach_mul_.Scalar([z[0], z.unfold(1, 2, 2)], 2)
        return z

    with pytest.raises(UnsupportedProgramError, match="writes to its memory twice"):
        lower(twice, X, output_type="linalg-on-tensors")


def test_region_whose_results_are_read() -> None:
    def in_region(x: Tensor) -> tuple[Tensor, Tensor]:
        z = x.clone()
        windows = z.unfold(1, 2, 2)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            doubled = windows.mul_(2)
        return z, doubled

    with pytest.raises(UnsupportedProgramError, match="has other results than what it writes"):
        lower(in_region, X, output_type="linalg-on-tensors")
