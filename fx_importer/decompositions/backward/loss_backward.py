"""Gradients of losses that select elements by labels, with masks instead of scatters."""

from __future__ import annotations

import torch
from torch import Tensor

from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten

_NONE, _MEAN = 0, 1
"""Reduction modes."""


@decomposes(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """Return ``-grad * weight`` at the label, and zero elsewhere.

    ``x``: [classes], [n, classes] or [n, classes, …]; ``target``: the same without the classes. For [classes], the
    label is the first element of ``target``, which eager also takes as [classes].
    """
    axis = 0 if x.dim() == 1 else 1
    shape = [-1 if k == axis else 1 for k in range(x.dim())]
    labels = target.unsqueeze(axis) if x.dim() > 1 else target.reshape(-1).narrow(0, 0, 1)
    hit = (labels == torch.arange(x.shape[axis]).reshape(shape)) & (labels != ignore_index)
    if reduction == _MEAN:
        grad = grad / total_weight
    if reduction == _NONE and x.dim() > 1:
        grad = grad.unsqueeze(axis)
    share = -grad if weight is None else -grad * weight.reshape(shape)
    return torch.where(hit, share, torch.zeros((), dtype=x.dtype)).expand(x.shape)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1] if x.dim() else 1)


def _gradient_per_row(grad: Tensor, rows: Tensor, reduction: int) -> Tensor:
    """Return the gradient of each of ``rows``, [n, classes], divided by the number of classes: [n, 1] or a scalar."""
    number = rows.shape[0] * rows.shape[1] if reduction == _MEAN else rows.shape[1]
    return (grad.reshape(-1, 1) if reduction == _NONE else grad) / number


@decomposes(aten.multi_margin_loss_backward.default)
def multi_margin_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    p: float,
    margin: float,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    """Return the gradient of the sum over classes j != target of ``max(0, margin - x[target] + x[j]) ** p``."""
    rows, labels = _rows(x), target.reshape(-1, 1)
    hit = labels == torch.arange(rows.shape[1])
    zero = torch.zeros((), dtype=x.dtype)
    chosen = torch.sum(torch.where(hit, rows, zero), 1, keepdim=True)
    short = margin - chosen + rows
    slope = torch.where((short > 0) & ~hit, torch.ones_like(rows) if p == 1 else 2 * short, zero)
    if weight is not None:
        slope = slope * torch.sum(torch.where(hit, weight, zero), 1, keepdim=True)
    slope = torch.where(hit, -torch.sum(slope, 1, keepdim=True), slope)
    return (slope * _gradient_per_row(grad, rows, reduction)).reshape(x.shape)


@decomposes(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    """Return the gradient of the sum of ``max(0, 1 - x[t] + x[j])`` over targets t, up to -1, and other classes j.

    ``is_target``, of the shape of ``x``, is 1 for the classes that are targets.
    """
    rows = _rows(x)
    labels = target.reshape(rows.shape).unsqueeze(-1)  # [n, targets, 1]
    ended = torch.cumsum((labels < 0).to(torch.int32), 1) > 0
    hit = (labels == torch.arange(rows.shape[1])) & ~ended  # [n, targets, classes]
    zero = torch.zeros((), dtype=x.dtype)
    chosen = torch.sum(torch.where(hit, rows.unsqueeze(1), zero), 2, keepdim=True)
    others = is_target.reshape(rows.shape).unsqueeze(1) == 0
    active = ((1 - chosen + rows.unsqueeze(1)) > 0) & others & ~ended
    slope = active.to(x.dtype)
    back = torch.where(hit, -torch.sum(slope, 2, keepdim=True), zero)
    return (torch.sum(slope + back, 1) * _gradient_per_row(grad, rows, reduction)).reshape(x.shape)


LOSS_BACKWARD = (nll_loss_backward, multi_margin_loss_backward, multilabel_margin_loss_backward)
