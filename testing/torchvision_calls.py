"""Calls of torchvision's operators, and what torchvision 0.28 returned for them.

    python -m testing.torchvision_calls

writes ``torchvision_results.json`` again, where torchvision is installed. Tests define the operators, by
`torchvision_operators`, and need it not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

RESULTS = Path(__file__).with_name("torchvision_results.json")

_ROI = "Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_KERNEL = (
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
_DEFORM = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"
SCHEMAS = {
    "roi_align": f"(Tensor input, {_ROI}, int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward": f"(Tensor grad, {_ROI}, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor",
    "ps_roi_align": f"(Tensor input, {_ROI}, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward": "(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, "
    f"SymInt pooled_height, SymInt pooled_width, int sampling_ratio, {_SIZES}) -> Tensor",
    "roi_pool": f"(Tensor input, {_ROI}) -> (Tensor, Tensor)",
    "_roi_pool_backward": "(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, SymInt pooled_height, "
    f"SymInt pooled_width, {_SIZES}) -> Tensor",
    "ps_roi_pool": f"(Tensor input, {_ROI}) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward": "(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, "
    f"SymInt pooled_height, SymInt pooled_width, {_SIZES}) -> Tensor",
    "deform_conv2d": f"({_DEFORM}, {_KERNEL}) -> Tensor",
    "_deform_conv2d_backward": f"(Tensor grad, {_DEFORM}, {_KERNEL}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
"""The schemas that torchvision publishes."""

Calls = dict[str, tuple[str, tuple[Any, ...]]]


def numbers(*shape: int, step: int = 37, scale: float = 1.0) -> Tensor:
    """Return numbers between -1 and 1, times ``scale``, the same on every machine."""
    return ((torch.arange(math.prod(shape)) * step % 101).to(torch.float32) / 50 - 1).reshape(shape) * scale


BOXES = torch.tensor(
    [
        [1.0, 0.5, 1.0, 4.2, 3.1],
        [0.0, -3.0, -2.0, 20.0, 11.0],  # larger than the image
        [1.0, -40.0, -40.0, -20.0, -20.0],  # outside of it
        [0.0, 3.0, 3.0, 2.0, 1.0],  # without an area
    ]
)
"""Regions in images 5 high and 6 wide: the image, left, top, right and bottom."""

_IMAGES = (2, 4, 5, 6)


def _regions() -> Calls:
    images, calls = numbers(*_IMAGES), Calls()
    for ratio in (-1, 2):
        for aligned in (True, False):
            arguments = (BOXES, 0.5, 2, 3)
            calls[f"roi_align {ratio} {aligned}"] = ("roi_align", (images, *arguments, ratio, aligned))
            grad = numbers(4, 4, 2, 3)
            backward = (grad, *arguments, *_IMAGES, ratio, aligned)
            calls[f"gradient of roi_align {ratio} {aligned}"] = ("_roi_align_backward", backward)
        calls[f"ps_roi_align {ratio}"] = ("ps_roi_align", (images, BOXES[:3], 1.0, 2, 2, ratio))
        backward = (numbers(4, 1, 2, 2), BOXES, torch.zeros(4, 1, 2, 2, dtype=torch.int32), 1.0, 2, 2, ratio, *_IMAGES)
        calls[f"gradient of ps_roi_align {ratio}"] = ("_ps_roi_align_backward", backward)
    places = torch.tensor([4, -1, 29, 0, 12, 4], dtype=torch.int32).reshape(1, 1, 3, 2).expand(4, 4, 3, 2).contiguous()
    for name, grid, extra in (("roi_pool", (3, 2), places), ("ps_roi_pool", (2, 2), None)):
        calls[name] = (name, (images, BOXES, 0.5, *grid))
        grad = numbers(4, 4 if extra is not None else 1, *grid)
        saved = torch.zeros(grad.shape, dtype=torch.int32) if extra is None else extra
        calls[f"gradient of {name}"] = (f"_{name}_backward", (grad, BOXES, saved, 0.5, *grid, *_IMAGES))
    calls["no regions"] = ("roi_align", (images, BOXES[:0], 1.0, 2, 2, 2, True))
    return calls


def _deformed(
    groups: int, offset_groups: int, stride: int, padding: int, dilation: int, masked: bool
) -> tuple[Any, ...]:
    images = numbers(*_IMAGES)
    sizes = [
        (size + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for size, k in zip((5, 6), (3, 2), strict=True)
    ]
    offset = numbers(2, offset_groups * 12, *sizes, step=29, scale=2.5)
    mask = numbers(2, offset_groups * 6, *sizes, step=17) if masked else torch.zeros(2, 1)
    weight, bias = numbers(2, 4 // groups, 3, 2, step=41), numbers(2)
    kernel = (stride, stride, padding, padding, dilation, dilation, groups, offset_groups, masked)
    return images, weight, offset, mask, bias, *kernel


def _convolutions() -> Calls:
    calls = Calls()
    for name, arguments in (("masked", (2, 2, 1, 1, 1, True)), ("strided", (1, 1, 2, 2, 2, False))):
        call = _deformed(*arguments)
        calls[f"deform_conv2d {name}"] = ("deform_conv2d", call)
        grad = numbers(2, 2, *call[2].shape[2:])
        calls[f"gradients of deform_conv2d {name}"] = ("_deform_conv2d_backward", (grad, *call))
    return calls


def overlapping_boxes(number: int) -> tuple[Tensor, Tensor]:
    """Return boxes with whole coordinates, many of which overlap, and scores, some of which are equal."""
    corner = (numbers(number, 2) * 5).round()
    return torch.cat([corner, corner + (numbers(number, 2, step=23) * 3).round() + 4], 1), (numbers(number) * 4).round()


def torchvision_calls() -> Calls:
    """Return calls by name: the operator's name, and its arguments."""
    suppressions: Calls = {
        f"nms {threshold}": ("nms", (*overlapping_boxes(24), threshold)) for threshold in (0.0, 0.1, 0.25, 0.5)
    }
    return {**_regions(), **_convolutions(), **suppressions, "nms of nothing": ("nms", (*overlapping_boxes(0), 0.5))}


def expected_results() -> dict[str, list[Tensor]]:
    """Return the results by name of the call."""
    stored = json.loads(RESULTS.read_text())
    return {
        name: [torch.tensor(values, dtype=getattr(torch, dtype)).reshape(shape) for dtype, shape, values in results]
        for name, results in stored.items()
    }


def _fake_result(name: str, arguments: Sequence[Any]) -> Any:
    """Return empty results of the shapes and dtypes that the operator returns."""
    x, boxes = arguments[:2]
    if name == "nms":
        return x.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)
    if name == "deform_conv2d":
        return x.new_empty((x.shape[0], arguments[1].shape[0], *arguments[2].shape[2:]))
    if name == "_deform_conv2d_backward":
        return tuple(torch.empty_like(each) for each in arguments[1:6])
    if name.endswith("_backward"):
        end = len(arguments) - {"_roi_align_backward": 2}.get(name, 0)
        return x.new_empty(arguments[end - 4 : end])
    rows, columns = arguments[3:5]
    result = x.new_empty((boxes.shape[0], x.shape[1] // (rows * columns if "ps_" in name else 1), rows, columns))
    return result if name == "roi_align" else (result, torch.empty_like(result, dtype=torch.int32))


@contextmanager
def torchvision_operators() -> Iterator[None]:
    """Define the operators, without kernels: a program with them can be exported, and not run."""
    with torch.library._scoped_library("torchvision", "DEF") as library:
        for name, schema in SCHEMAS.items():
            library.define(name + schema)
            torch.library.register_fake(
                f"torchvision::{name}", lambda *arguments, name=name: _fake_result(name, arguments), lib=library
            )
        yield


def main() -> None:
    """Write the results that the installed torchvision returns."""
    import torchvision  # noqa: F401  # pyright: ignore

    stored: dict[str, Any] = {}
    for name, (operator, arguments) in torchvision_calls().items():
        results = getattr(torch.ops.torchvision, operator)(*arguments)
        results = results if isinstance(results, tuple) else (results,)
        stored[name] = [
            (
                str(each.dtype).removeprefix("torch."),
                list(each.shape),
                [float(f"{value:.8g}") for value in each.flatten()],
            )
            for each in results
        ]
    RESULTS.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in stored.items()) + "\n}\n")


if __name__ == "__main__":
    main()
