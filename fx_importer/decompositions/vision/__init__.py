"""Decompositions of torchvision's operators, by their names: torchvision is not imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fx_importer.decompositions.vision import deform_conv2d, nms, roi_align, roi_pool

VISION: Mapping[str, Callable[..., Any]] = {
    "torchvision::roi_align": roi_align.roi_align,
    "torchvision::_roi_align_backward": roi_align.roi_align_backward,
    "torchvision::ps_roi_align": roi_align.ps_roi_align,
    "torchvision::_ps_roi_align_backward": roi_align.ps_roi_align_backward,
    "torchvision::roi_pool": roi_pool.roi_pool,
    "torchvision::_roi_pool_backward": roi_pool.roi_pool_backward,
    "torchvision::ps_roi_pool": roi_pool.ps_roi_pool,
    "torchvision::_ps_roi_pool_backward": roi_pool.ps_roi_pool_backward,
    "torchvision::deform_conv2d": deform_conv2d.deform_conv2d,
    "torchvision::_deform_conv2d_backward": deform_conv2d.deform_conv2d_backward,
    "torchvision::nms": nms.nms,
}
"""The rules by operator, as its schema names it."""
