"""Decompositions of the fused linear-cross-entropy losses of ``torch.ops.torch_nn``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.torch_internals import torch_nn


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
    chunk: int,
    policy: str,
    precision: torch.dtype,
    again: bool,
    *wanted: bool,
) -> Any:
    """Return the cross entropy of a linear layer, which torch computes in chunks of the batch, and its gradients.

    Gradients are with respect to ``x``, [n, features], the weight, [classes, features], and the bias; those not
    ``wanted`` are empty. Returns ``NotImplemented`` with label smoothing if any is wanted.
    """
    if any(wanted) and label_smoothing:
        return NotImplemented
    rows, matrix = x.to(precision), linear_weight.to(precision)
    bias = None if linear_bias is None else linear_bias.to(precision)
    weight = None if weight is None else weight.to(precision)
    scores = functional.linear(rows, matrix, bias)
    loss = functional.cross_entropy(
        scores, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    ).to(x.dtype)
    gradients = [x.new_zeros(0, 0), x.new_zeros(0, 0), x.new_zeros(0)]
    if any(wanted):
        kept = target != ignore_index
        labels = (target.unsqueeze(1) == torch.arange(matrix.shape[0])) & kept.unsqueeze(1)
        zero = torch.zeros((), dtype=precision)
        share = kept.to(precision) if weight is None else torch.sum(torch.where(labels, weight, zero), 1)
        if reduction == "mean":
            share = share / torch.sum(share)
        of_scores = (torch.softmax(scores, 1) - labels.to(precision)) * share.unsqueeze(1)
        all_gradients = of_scores @ matrix, of_scores.transpose(0, 1) @ rows, torch.sum(of_scores, 0)
        gradients = [
            one.to(x.dtype) if want else none for one, none, want in zip(all_gradients, gradients, wanted, strict=True)
        ]
    return loss, *gradients


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
    """Return the loss of each sample of the batch."""
    scores = functional.linear(x, linear_weight, linear_bias)
    return functional.cross_entropy(scores, target, weight, ignore_index=ignore_index, reduction="none")


LOSSES = (linear_cross_entropy, linear_cross_entropies)
