"""Losses that torch.nn has as operators of its own."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.modules.linear_cross_entropy  # registers the operators  # pyright: ignore[reportUnusedImport]
from torch import Tensor
from torch.nn import functional

from fx_importer.decompositions.table import decomposes

torch_nn = torch.ops.torch_nn


@decomposes(torch_nn._linear_cross_entropy_batch_chunked.default)
def linear_cross_entropy(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    *rest: Any,
) -> Any:
    """The loss of a linear layer, which torch computes in chunks of the batch. Gradients that nobody wants are empty.

    ``rest`` ends with whether the input, the weight and the bias want one.
    """
    if any(rest[-3:]):
        return NotImplemented
    scores = functional.linear(x, linear_weight, linear_bias)
    loss = functional.cross_entropy(
        scores, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    return loss, x.new_zeros(0, 0), x.new_zeros(0, 0), x.new_zeros(0)


@decomposes(torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default)
def linear_cross_entropies(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    *rest: Any,
) -> Any:
    """The loss of each of the batch."""
    scores = functional.linear(x, linear_weight, linear_bias)
    return functional.cross_entropy(scores, target, weight, ignore_index=ignore_index, reduction="none")


LOSSES = (linear_cross_entropy, linear_cross_entropies)
