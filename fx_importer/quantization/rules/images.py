"""Rules of resizes and transposed convolutions."""

from __future__ import annotations

from typing import Any

from torch import fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.operators.int8 import integer
from fx_importer.quantization.qdq import Weight
from fx_importer.quantization.rules.products import constant_weight, weighted
from fx_importer.quantization.rules.resizes import BILINEAR, bilinear_places
from fx_importer.quantization.rules.scope import Rule, Scope, arguments
from fx_importer.quantization.rules.windows import pair, shape_of
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of


def _bilinear(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    sizes, scale, offset, border = bilinear_places(node)
    x, of_x = scope.quantized(node.args[0])
    if of_x.bits == 16:
        raise NoIntegerForm("bilinear resizes of int16 have no integer form")
    weights = scale[0] * scale[2]
    by = multiplier_and_shift(of_x.scale / params.scale / weights, float(256 * weights))
    return scope.call(
        node,
        integer.resize_bilinear.default,
        *(x, sizes, scale, offset, border, of_x.zero_point, *by, *out_of(params)),
    )


def _transposed_convolution(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    given = arguments(node)
    if len(shape_of(node)) != 4:
        raise NoIntegerForm("it is no convolution over a batch and two axes")
    stride, padding, extra, dilation = (
        pair(given[name]) for name in ("stride", "padding", "output_padding", "dilation")
    )
    weight = _filters(constant_weight(scope, given["weight"]), given["groups"], dilation)
    x, of_x = scope.quantized(given["input"])
    if of_x.bits == 16:
        raise NoIntegerForm("transposed convolutions of int16 have no integer form")
    kernel = weight.values.shape[2:]
    sides = [side for before, after in zip(padding, extra, strict=True) for side in (-before, after - before)]
    if any(side <= -kernel[index // 2] for index, side in enumerate(sides)):
        raise NoIntegerForm(f"its padding {padding} is not less than its kernel {list(kernel)}")
    if given["groups"] == 1:
        source, *biases, scales = weighted(scope, weight, given["bias"], of_x, params)
        rest = (*biases, stride, sides, of_x.zero_point, *scales, *out_of(params))
        return scope.call(node, integer.conv_transpose2d.default, x, source, *rest)
    return _by_groups(scope, node, given, x, of_x, weight, (stride, sides), params)


def _by_groups(
    scope: Scope,
    node: fx.Node,
    given: dict[str, Any],
    x: fx.Node,
    of_x: Params,
    weight: Weight,
    windows: tuple[list[int], list[int]],
    params: Params,
) -> fx.Node:
    """Emit a transposed convolution in groups as a convolution of elements that zeros lie between."""
    (stride, sides), kernel = windows, weight.values.shape[2:]
    batch, channels, *sizes = shape_of(x)
    for axis, step in zip((2, 3), stride, strict=True):
        if step > 1:
            x = scope.call(node, aten.unsqueeze.default, x, axis + 1)
            ends = [0] * (2 * (3 - axis)) + [0, step - 1]
            x = scope.call(node, aten.constant_pad_nd.default, x, ends, of_x.zero_point)
            sizes[axis - 2] = sizes[axis - 2] * step
            x = scope.call(node, aten.reshape.default, x, [batch, channels, *sizes])
            sizes[axis - 2] -= step - 1
            x = scope.call(node, aten.slice.Tensor, x, axis, 0, sizes[axis - 2])
    sides = [kernel[index // 2] - 1 + side for index, side in enumerate(sides)]
    flipped = weight.values.flip((2, 3)).contiguous()
    turned = Weight(flipped, scope.constants.add(flipped), weight.scales, weight.zero_points, weight.axis)
    source, *biases, scales = weighted(scope, turned, given["bias"], of_x, params)
    rest = ([1, 1], sides, [1, 1], given["groups"], of_x.zero_point, *scales, *out_of(params))
    return scope.call(node, integer.conv2d.default, x, source, *biases, *rest)


def _filters(weight: Weight, groups: int, dilation: list[int]) -> Weight:
    """Return a weight ``[C, O / groups, h, w]`` as ``[O, C / groups, h, w]``, with zeros for the dilation."""
    values = weight.values.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    *outer, high, wide = values.shape
    sizes = [by * (size - 1) + 1 for by, size in zip(dilation, (high, wide), strict=True)]
    spread = values.new_zeros([*outer, *sizes])
    spread[..., :: dilation[0], :: dilation[1]] = values
    if weight.axis not in (None, 1):
        raise NoIntegerForm(f"its weights have scales along axis {weight.axis}, and not along their output channels")
    repeats = 1 if weight.axis is None else groups
    scales, zeros = weight.scales.repeat(repeats), weight.zero_points.repeat(repeats)
    return Weight(spread, None, scales, zeros, None if weight.axis is None else 0)


IMAGES: dict[Any, Rule] = {
    **dict.fromkeys(BILINEAR, _bilinear),
    aten.conv_transpose2d.input: _transposed_convolution,
}
"""By operator."""
