"""Convolutions, pooling and resizing."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from .harness import TOSA, Case, check, integers, normal, table

aten = torch.ops.aten

IMAGE = normal(2, 4, 8, 8)
LENGTH = torch.export.Dim.DYNAMIC


def sampled_volumes(x: torch.Tensor, grid: torch.Tensor):
    modes = [(mode, pad, corners) for mode in (0, 1) for pad in (0, 1, 2) for corners in (False, True)]
    return [torch.grid_sampler_3d(x, grid, *mode) for mode in modes]


def sampled_images(x: torch.Tensor, grid: torch.Tensor):
    modes = [(mode, pad, corners) for mode in (0, 1, 2) for pad in (0, 1, 2) for corners in (False, True)]
    return [torch.grid_sampler_2d(x, grid, *mode) for mode in modes]


def pools_beyond_the_image(x: torch.Tensor):
    return (
        F.max_pool2d(x, 3, 2, 1, dilation=(1, 2), ceil_mode=True),
        F.max_pool2d(x, (1, 4), (3, 4), ceil_mode=True),  # a last window that begins beyond the image is left out
        F.avg_pool2d(x, 2, 2, ceil_mode=True, count_include_pad=False),
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        F.avg_pool2d(x, (2, 3), 3, (1, 0), True, True, 5),
        F.avg_pool2d(x, 40, None, 3, True, False),
    )


def fractional(image: torch.Tensor, volume: torch.Tensor, of_image: torch.Tensor, of_volume: torch.Tensor):
    return [
        *aten.fractional_max_pool2d(image, [2, 3], [5, 4], of_image),
        *aten.fractional_max_pool3d(volume, [2, 1, 3], [3, 1, 2], of_volume),
    ]


def unbatched(line: torch.Tensor, image: torch.Tensor, volume: torch.Tensor):
    return [
        F.avg_pool1d(line, 3, 2, 1, True, False),
        F.avg_pool2d(image, 3, 2, 1, True, False),
        F.avg_pool2d(image, 3, 2, 1, True, True, 5),
        F.avg_pool3d(volume, 3, 2, 1, True, False),
        F.avg_pool3d(volume, 2, divisor_override=3),
        F.max_pool2d(image, 3, 2, 1, ceil_mode=True),
        F.max_pool3d(volume, 3, 2, 1, ceil_mode=True),
    ]


def nearest(x: torch.Tensor):
    return F.interpolate(x, scale_factor=1.5), F.interpolate(x, scale_factor=1.5, mode="nearest-exact")


def smooth(x):
    return tuple(F.interpolate(x, (3, 9), mode=mode, antialias=True) for mode in ("bilinear", "bicubic"))


def resized_bytes(x):
    return F.interpolate(x, (5, 9), mode="bilinear", antialias=True), F.interpolate(x, (6, 5), mode="bilinear")


def resized_bytes_by_other_modes(x):
    aligned = F.interpolate(x, (9, 7), mode="bilinear", align_corners=True)
    return F.interpolate(x, (5, 9), mode="bicubic", antialias=True), aligned


def convolved_bytes(x):
    weight = torch.arange(3 * 2 * 2 * 2, dtype=torch.uint8).reshape(1, 3, 2, 2, 2) * 9
    signed = F.conv2d(x[..., 0].to(torch.int8), weight[..., 0].to(torch.int8), stride=2)
    return F.conv3d(x, weight, weight[:, 0, 0, 0, 1], padding=1), F.conv1d(x[..., 0, 0], weight[..., 0, 0]), signed


@pytest.mark.slow_rows("^many_groups-tosa$", "^many_groups-linalg", "^transposed_cut-linalg", "^bytes-tosa")
@table(
    Case("plain", lambda: (nn.Conv2d(4, 6, 3), (IMAGE,))),
    Case("padded", lambda: (nn.Conv2d(4, 6, 3, padding=1), (IMAGE,))),
    Case("same", lambda: (nn.Conv2d(4, 6, (3, 5), padding="same"), (IMAGE,))),
    Case("strided_without_bias", lambda: (nn.Conv2d(4, 6, 3, stride=2, bias=False), (IMAGE,))),
    Case("dilated", lambda: (nn.Conv2d(4, 6, 3, dilation=2), (IMAGE,))),
    Case("grouped", lambda: (nn.Conv2d(4, 6, 3, groups=2), (IMAGE,))),
    Case("depthwise", lambda: (nn.Conv2d(4, 8, 3, padding=1, groups=4), (IMAGE,))),
    Case("pointwise", lambda: (nn.Conv2d(4, 6, 1), (IMAGE,))),
    Case("reflected", lambda: (nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (IMAGE,))),
    Case("channels_last", lambda: (nn.Conv2d(4, 6, 3), (IMAGE.contiguous(memory_format=torch.channels_last),))),
    Case("one_axis", lambda: (nn.Conv1d(4, 6, 3, padding=1), (normal(2, 4, 8),))),
    Case(
        "one_axis_causal",
        lambda: (lambda x, w: F.conv1d(F.pad(x, (2, 0)), w, groups=4), (normal(2, 4, 8), normal(4, 1, 3))),
    ),
    Case("three_axes", lambda: (nn.Conv3d(2, 3, 2), (normal(1, 2, 4, 4, 4),))),
    Case("transposed", lambda: (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (IMAGE,))),
    Case("transposed_grouped", lambda: (nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), (IMAGE,))),
    Case("transposed_grouped_empty", lambda: (nn.ConvTranspose2d(4, 6, 2, padding=1, groups=2), (normal(2, 4, 3, 1),))),
    Case(
        "transposed_unevenly",
        lambda: (nn.ConvTranspose2d(4, 6, (2, 3), (3, 2), (1, 2), (2, 1), 2, dilation=(4, 3)), (IMAGE,)),
    ),
    Case(
        "transposed_cut_unevenly", lambda: (nn.ConvTranspose2d(4, 6, 2, 2, padding=2, output_padding=(0, 1)), (IMAGE,))
    ),
    Case("transposed_cut", lambda: (nn.ConvTranspose2d(4, 6, 2, stride=2, padding=2, groups=2), (IMAGE,))),
    Case("grouped_three_axes", lambda: (nn.Conv3d(4, 6, 2, groups=2), (normal(1, 4, 4, 4, 4),))),
    Case(
        "time_first",
        lambda: (lambda x, w, b: torch.conv_tbc(x, w, b, 1), (normal(5, 2, 3), normal(3, 3, 4), normal(4))),
    ),
    Case("many_groups", lambda: (nn.Conv2d(90, 90, 3, padding=1, groups=45), (normal(1, 90, 4, 4),))),
    Case("transposed_depthwise", lambda: (nn.ConvTranspose2d(4, 4, 3, 2, padding=1, groups=4), (IMAGE,))),
    Case("depthwise_three_axes", lambda: (nn.Conv3d(3, 3, 2, groups=3), (normal(1, 3, 3, 3, 3),))),
    Case(
        "volumes_by_planes",
        lambda: (
            nn.Conv3d(8, 12, (2, 3, 1), (2, 1, 3), padding=(1, 0, 1), dilation=(1, 2, 1), groups=4),
            (normal(2, 8, 5, 7, 5),),
        ),
    ),
    Case(
        "volumes_of_any_batch",
        lambda: (nn.Conv3d(8, 4, 2, groups=4, padding=1), (normal(2, 8, 3, 3, 3),)),
        dynamic_shapes=({0: LENGTH},),
        others=lambda: [(normal(4, 8, 3, 3, 3),)],
    ),
    Case(
        "transposed_volume_cut", lambda: (nn.ConvTranspose3d(2, 3, (3, 1, 2), 2, padding=1), (normal(1, 2, 3, 3, 3),))
    ),
    Case("transposed_one_axis", lambda: (nn.ConvTranspose1d(4, 6, 3, stride=2), (normal(2, 4, 8),))),
    Case(
        "bytes",
        lambda: (convolved_bytes, (integers(2, 3, 4, 4, 4, low=0, high=256).to(torch.uint8),)),
        dynamic_shapes=({0: LENGTH},),
        others=lambda: [(integers(4, 3, 4, 4, 4, low=0, high=256).to(torch.uint8),)],
    ),
)
def test_convolution(case, output_type):
    check(case, output_type)


@pytest.mark.slow_rows(
    "^bytes-(tosa|stablehlo)$",
    "^bytes_by_other_modes-",
    "grid_sample_of_a_volume",
    "(bilinear|nearest|average|adaptive)\\w*-(tosa|stablehlo)",
    "(adaptive_average_three_axes|adaptive_max_uneven|nearest_beyond_the_end|bicubic)-stablehlo",
    "^unbatched-tosa$",
    "^nearest_beyond_the_end-tosa$",
    "^adaptive_max-tosa$",
    "^adaptive_average_uneven-tosa$",
    "^max_ceil-tosa$",
    "^unbatched_dynamic-stablehlo$",
    "^adaptive_average_three_axes-tosa$",
    "^average_three_axes-tosa$",
    "^grid_sample-tosa$",
    "^fractional_max-tosa$",
    "^adaptive_max_uneven-tosa$",
    "^bicubic-tosa$",
    "^max_three_axes-tosa$",
    "^average_ceil-tosa$",
    "^trilinear_to_a_size-tosa$",
    "^trilinear_to_a_size-stablehlo$",
    "^unbatched_dynamic-tosa$",
    "^max_and_where-tosa$",
    "^max-tosa$",
    "^grid_sample-stablehlo$",
    "^fractional_max-stablehlo$",
    "^max_of_integers-tosa$",
    "^max_dilated-tosa$",
    "^adaptive_average_uneven-stablehlo$",
    "^smooth-stablehlo$",
    "^max_one_axis-tosa$",
    "^bilinear-stablehlo$",
    "^bilinear_aligned-stablehlo$",
    "^bilinear_by_scales-stablehlo$",
    "^bilinear_aligned-tosa$",
    "^bilinear-tosa$",
    "^nearest_to_a_size-tosa$",
    "^unbatched_dynamic-",
    "^smooth_of_doubles-",
    "^adaptive_average_three_axes-",
    "^nearest_beyond_the_end-",
    "^adaptive_average_uneven-",
    "^(adaptive_max_uneven|nearest_by_scales_that_stay|bicubic|bilinear_aligned|bilinear_by_scales)-linalg",
    "^unbatched-linalg",
    "^bytes-linalg",
)
@table(
    Case("max", lambda: (nn.MaxPool2d(3, stride=2, padding=1), (IMAGE,))),
    Case("max_of_integers", lambda: (nn.MaxPool2d(2), (integers(1, 2, 4, 4, low=-9, high=9),))),
    Case("max_ceil", lambda: (nn.MaxPool2d(3, stride=2, ceil_mode=True), (IMAGE,))),
    Case("max_and_where", lambda: (nn.MaxPool2d(2, return_indices=True), (IMAGE,))),
    Case("max_three_axes", lambda: (nn.MaxPool3d(2, stride=1, return_indices=True), (normal(1, 2, 3, 4, 4),))),
    Case("max_dilated", lambda: (nn.MaxPool2d(2, dilation=2), (IMAGE,))),
    Case("adaptive_max_uneven", lambda: (nn.AdaptiveMaxPool2d(3, return_indices=True), (IMAGE,))),
    Case(
        "fractional_max",
        lambda: (
            fractional,
            (IMAGE, normal(2, 5, 5, 5), normal(2, 4, 2).sigmoid(), normal(1, 2, 3, seed=2).sigmoid()),
        ),
    ),
    Case("average_three_axes", lambda: (nn.AvgPool3d(2, padding=1), (normal(1, 2, 3, 4, 4),))),
    Case("average_ceil", lambda: (nn.AvgPool2d(3, 2, ceil_mode=True), (IMAGE,))),
    Case("max_one_axis", lambda: (nn.MaxPool1d(2), (normal(2, 4, 8),))),
    Case("average", lambda: (nn.AvgPool2d(2), (IMAGE,))),
    Case("average_padded", lambda: (nn.AvgPool2d(3, stride=2, padding=1), (IMAGE,))),
    Case("average_without_padding", lambda: (nn.AvgPool2d(3, 2, padding=1, count_include_pad=False), (IMAGE,))),
    Case("global_average", lambda: (nn.AdaptiveAvgPool2d(1), (IMAGE,))),
    Case("adaptive_average", lambda: (nn.AdaptiveAvgPool2d((4, 2)), (IMAGE,))),
    Case("adaptive_average_uneven", lambda: (nn.AdaptiveAvgPool2d(3), (IMAGE,))),
    Case(
        "adaptive_average_three_axes",
        lambda: (
            nn.Sequential(nn.AdaptiveAvgPool3d((2, 1, 1)), nn.Flatten(), nn.Linear(8, 3)),
            (normal(2, 4, 2, 4, 4),),
        ),
    ),
    Case("unbatched", lambda: (unbatched, (normal(3, 7), normal(3, 7, 8), normal(3, 5, 4, 6)))),
    Case(
        "unbatched_dynamic",
        lambda: (unbatched, (normal(3, 7), normal(3, 7, 8), normal(3, 5, 4, 6))),
        dynamic_shapes=({1: LENGTH},) * 3,
        others=lambda: ((normal(3, 9), normal(3, 6, 8), normal(3, 6, 4, 6)),),
    ),
    Case(
        "nearest_beyond_the_end",
        lambda: (lambda x: (aten.upsample_nearest2d(x, [9, 11], 2.0, 2.5), nearest(x)), (normal(2, 3, 3, 4),)),
        dynamic_shapes=({2: LENGTH, 3: LENGTH},),
        others=lambda: ((normal(2, 3, 5, 3),),),
    ),
    Case("adaptive_max", lambda: (nn.AdaptiveMaxPool2d(1), (IMAGE,))),
    Case("nearest", lambda: (nn.Upsample(scale_factor=2), (IMAGE,))),
    # What TorchScript emits for no scale: eager takes one that is not positive for none.
    Case(
        "nearest_by_no_scale", lambda: (lambda x: aten.upsample_nearest2d(x, [9, 10], -1.0, 0.0), (normal(2, 3, 3, 4),))
    ),
    Case("nearest_to_a_size", lambda: (lambda x: F.interpolate(x, (5, 12)), (IMAGE,))),
    Case("nearest_by_a_fraction", lambda: (lambda x: F.interpolate(x, scale_factor=1.7), (IMAGE,))),
    Case(
        "nearest_by_scales_that_double",
        lambda: (lambda x: F.interpolate(x, scale_factor=(2.2, 1.2)), (normal(1, 2, 4, 3),)),
        dynamic_shapes=({2: LENGTH, 3: LENGTH},),
        others=lambda: ((normal(1, 2, 6, 4),), (normal(1, 2, 3, 70),)),
    ),
    Case(
        "nearest_by_scales_that_stay",
        lambda: (
            lambda x, grad: (
                F.interpolate(x, scale_factor=(2.2, 1.1)),
                aten.upsample_nearest2d_backward(grad, [8, 8], [2, 4, 4, 8], 2.2, 1.1),
            ),
            (IMAGE[..., :4, :], IMAGE),
        ),
    ),
    Case("nearest_to_less", lambda: (lambda x: (F.interpolate(x, (3, 4)), F.interpolate(x[..., 0], 3)), (IMAGE,))),
    Case(
        "nearest_where_float32_rounds",
        lambda: (
            lambda x: (F.interpolate(x, (2, 16)), F.interpolate(x[..., :2], scale_factor=(2 / 14, 41.0))),
            (normal(1, 1, 14, 14),),
        ),
    ),
    Case("bilinear", lambda: (nn.Upsample(scale_factor=2, mode="bilinear"), (IMAGE,))),
    Case("bilinear_aligned", lambda: (nn.Upsample((5, 9), mode="bilinear", align_corners=True), (IMAGE,))),
    Case("smooth", lambda: (smooth, (IMAGE,))),
    Case(
        "smooth_of_doubles",
        lambda: (smooth, (IMAGE.double(),)),
        dynamic_shapes=({2: LENGTH},),
        others=lambda: [(normal(2, 4, 5, 8).double(),)],
        tolerance=(1e-12, 1e-14),
        fails={TOSA: "f64"},
    ),
    Case("bilinear_by_scales", lambda: (lambda x: aten.upsample_bilinear2d(x, [15, 15], False, 1.9, 1.9), (IMAGE,))),
    Case("trilinear_to_a_size", lambda: (lambda x: aten.upsample_trilinear3d(x[None], [6, 9, 8], True), (IMAGE,))),
    Case(
        "bytes",
        lambda: (resized_bytes, (integers(2, 3, 6, 16, low=0, high=256).to(torch.uint8),)),
        dynamic_shapes=({0: LENGTH, 3: LENGTH},),
        others=lambda: [(integers(3, 3, 6, 11, low=0, high=256).to(torch.uint8),)],
    ),
    Case(
        "bytes_by_other_modes",
        lambda: (resized_bytes_by_other_modes, (integers(2, 3, 6, 16, low=0, high=256).to(torch.uint8),)),
        dynamic_shapes=({0: LENGTH, 3: LENGTH},),
        others=lambda: [(integers(3, 3, 6, 11, low=0, high=256).to(torch.uint8),)],
    ),
    Case("bicubic", lambda: (nn.Upsample(scale_factor=2, mode="bicubic"), (IMAGE,))),
    Case(
        "grid_sample",
        lambda: (lambda x, g: F.grid_sample(x, g, align_corners=False), (IMAGE, normal(2, 3, 3, 2).tanh())),
    ),
    Case("sampled_images", lambda: (sampled_images, (normal(2, 3, 4, 6), normal(2, 3, 5, 2) * 1.5))),
    Case("pools_beyond_the_image", lambda: (pools_beyond_the_image, (normal(2, 3, 5, 8),))),
    Case(
        "average_of_large_halves",
        lambda: (
            lambda x: F.avg_pool2d(x, 5, 2, 2, count_include_pad=False),
            (torch.full((1, 2, 8, 9), 3000.0).half(),),
        ),
    ),
    Case("unfold", lambda: (nn.Unfold(3), (IMAGE,))),
    Case("grid_sample_of_a_volume", lambda: (sampled_volumes, (normal(2, 3, 2, 3, 4), normal(2, 2, 1, 3, 3) * 1.5))),
)
def test_pooling_and_resizing(case, output_type):
    check(case, output_type)
