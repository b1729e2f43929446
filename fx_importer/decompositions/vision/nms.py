"""The decomposition of ``nms``, non-maximum suppression of boxes that overlap one of a higher score."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fx_importer.decompositions.engine.static_shapes import is_empty
from fx_importer.decompositions.vision.regions import quotient, repeat_up_to
from fx_importer.fx_graph.operators import aten


def kept_in_order(boxes: Tensor, scores: Tensor, iou_threshold: float) -> tuple[Tensor, Tensor]:
    """Return the indices of boxes by descending score, and which of them are kept.

    A box is dropped if its overlap with one that is kept, in terms of the area of both, is above the threshold.
    Each turn of the loop decides about the boxes after one that is kept.
    """
    order: Tensor = aten.sort.stable(scores, stable=True, dim=0, descending=True)[1]
    limit = _largest_below(iou_threshold, boxes.dtype)
    place = torch.arange(boxes.shape[0])

    def step(turn: Tensor, kept: Tensor, boxes: Tensor, order: Tensor) -> tuple[Tensor]:
        here = order == turn
        left, top, right, bottom = (boxes[:, column] for column in range(4))
        own = torch.where(here.unsqueeze(1), boxes, 0.0).sum(0)
        width = (torch.minimum(right, own[2]) - torch.maximum(left, own[0])).clamp(min=0)
        height = (torch.minimum(bottom, own[3]) - torch.maximum(top, own[1])).clamp(min=0)
        both = width * height
        areas = (right - left) * (bottom - top)
        area = (own[2] - own[0]) * (own[3] - own[1])
        overlaps = quotient(both, area + areas - both) > limit
        counts = torch.any(here & kept)
        return (kept & ~(overlaps & (order > turn) & counts),)

    start = torch.full((boxes.shape[0],), True)
    turns = torch.full((1,), boxes.shape[0], dtype=torch.int64)
    (kept,) = repeat_up_to(turns, step, (start,), (boxes.index_select(0, order), place))
    return order, kept


def _largest_below(number: float, dtype: torch.dtype) -> float:
    """Return the largest value of ``dtype`` that is not above ``number``: a value exceeds both, or neither."""
    kind = np.float64 if dtype is torch.float64 else np.float32
    rounded = kind(number)
    return float(rounded if float(rounded) <= number else np.nextafter(rounded, kind(-math.inf)))


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the indices of the boxes [n, 4] that are kept, by descending score."""
    if is_empty(boxes):
        return torch.zeros((0,), dtype=torch.int64)
    order, kept = kept_in_order(boxes, scores, iou_threshold)
    return aten.index(order, [kept])
