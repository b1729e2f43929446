"""Decompositions of the multi-label margin loss and of the fused linear-cross-entropy losses of ``torch_nn``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.torch_internals import torch_nn


@decomposes(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Return the loss, and which classes are labels: those in ``target`` before the first negative number.

    torch's decomposition also counts the places after it, as labels of class 0.
    """
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    classes = rows.shape[1]
    place = torch.arange(classes)
    end = torch.amin(torch.where(labels < 0, place, classes), 1, keepdim=True)
    read = place < end
    index = torch.where(read, labels, 0)
    is_label = torch.any((place == index.unsqueeze(2)) & read.unsqueeze(2), 1)
    margins = 1 - torch.gather(rows, 1, index).unsqueeze(2) + rows.unsqueeze(1)
    counted = read.unsqueeze(2) & torch.logical_not(is_label).unsqueeze(1)
    losses = torch.sum(torch.where(counted, torch.clamp(margins, min=0), 0), (1, 2)) / classes
    loss = torch.mean(losses) if reduction == 1 else torch.sum(losses) if reduction == 2 else losses
    return loss.reshape(()) if x.dim() == 1 else loss, is_label.to(x.dtype).reshape(target.shape)


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
