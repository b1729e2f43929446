"""Gradients of the distances between rows: ``cdist`` and ``pdist``."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_static
from fx_importer.decompositions.engine.table import decomposes
from fx_importer.fx_graph.operators import aten


def _norm_derivative(difference: Tensor, distance: Tensor, p: float) -> Tensor:
    """Return the derivative of the p-norm of ``difference`` along the last axis; zero where it is zero."""
    zero = torch.zeros((), dtype=difference.dtype)
    sign = torch.sign(difference)
    if p == 0:
        return torch.zeros_like(difference)
    if p == 1:
        return sign
    size = torch.abs(difference)
    if math.isinf(p):
        return torch.where(size == distance, sign, zero)
    there = (distance > 0) & (size > 0)
    ratio = torch.where(there, size, torch.ones_like(size)) / torch.where(distance > 0, distance, 1.0)
    return torch.where(there, sign * ratio ** (p - 1), zero)


@decomposes(aten._cdist_backward.default)
def cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distance: Tensor) -> Tensor:
    """Return the gradient of ``a``, for (…, n, d) and (…, m, d), with distances (…, n, m)."""
    difference = a.unsqueeze(-2) - b.unsqueeze(-3)
    return torch.sum(grad.unsqueeze(-1) * _norm_derivative(difference, distance.unsqueeze(-1), p), -2)


@decomposes(aten._pdist_backward.default)
def pdist_backward(grad: Tensor, x: Tensor, p: float, distance: Tensor) -> Any:
    """Return the gradient of ``x``; each distance is between a row and a later one."""
    if not is_static(x):
        return NotImplemented
    if x.shape[0] < 2:
        return torch.zeros_like(x)
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1).unbind()
    share = grad.unsqueeze(-1) * _norm_derivative(x[first] - x[second], distance.unsqueeze(-1), p)
    zeros = torch.zeros(x.shape, dtype=x.dtype)
    return aten.index_put(aten.index_put(zeros, [first], share, True), [second], -share, True)


DISTANCE_BACKWARD = (cdist_backward, pdist_backward)
