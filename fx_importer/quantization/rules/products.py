"""Rules of products: convolutions, and products of matrices, with constant weights and of activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.operators.int8 import integer
from fx_importer.quantization.qdq import Weight, weight_of
from fx_importer.quantization.rules.scope import Rule, Scope, arguments
from fx_importer.quantization.rules.windows import four_sides, pair, same_padding, shape_of
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of


def _convolution(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    given = arguments(node)
    if given.get("transposed") or len(shape_of(node)) != 4:
        raise NoIntegerForm("it is no convolution over a batch and two axes")
    return convolution(scope, node, given, params)


def convolution(scope: Scope, node: fx.Node, given: dict[str, Any], params: Params, *, added: bool = False) -> fx.Node:
    """Emit a convolution of arguments ``given`` over two axes; with ``added``, the first is added, of size one."""
    x, of_x = scope.quantized(given["input"])
    weight, *biases, scales = weighted(scope, constant_weight(scope, given["weight"]), given["bias"], of_x, params)
    if added:
        x, weight = (scope.call(node, aten.unsqueeze.default, each, 2) for each in (x, weight))
    stride, dilation = pair(given["stride"]), pair(given["dilation"])
    padding, shape = given["padding"], shape_of(weight)
    sides = same_padding(padding, shape, dilation) if isinstance(padding, str) else four_sides(pair(padding))
    x, padded = _without_pad(x, of_x, sides, [by * (size - 1) for by, size in zip(dilation, shape[2:], strict=True)])
    sides = [each + by for each, by in zip(sides, padded, strict=True)]
    windows = (stride, sides, dilation, given["groups"])
    if of_x.bits == 16:
        made = scope.call(node, integer.wide_conv2d.default, x, weight, *biases, *windows, *scales, *out_of(params))
        return scope.call(node, aten.squeeze.dim, made, 2) if added else made
    made = scope.call(
        node, integer.conv2d.default, x, weight, *biases, *windows, of_x.zero_point, *scales, *out_of(params)
    )
    return scope.call(node, aten.squeeze.dim, made, 2) if added else made


def _without_pad(x: fx.Node, of_x: Params, sides: Sequence[int], most: Sequence[int]) -> tuple[fx.Node, list[int]]:
    """Return ``x`` before zeros around its images, and these as top, bottom, left and right of a convolution.

    With ``sides`` they are at most ``most`` rows and columns: less than a window.
    """
    if x.target is aten.constant_pad_nd.default and x.args[2] == of_x.zero_point:
        source, given, *_ = x.args
        by_side: list[int] = [*given, 0, 0, 0, 0][:4]  # type: ignore[misc, list-item]
        found = [*by_side[2:], *by_side[:2]]
        bounds = [each for each in most for _ in range(2)]
        fits = all(by >= 0 and by + at <= bound for by, at, bound in zip(found, sides, bounds, strict=True))
        if fits and len(given) <= 4:  # type: ignore[arg-type]
            return source, found  # type: ignore[return-value]
    return x, [0, 0, 0, 0]


def _convolution_of_one_axis(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    """Emit a convolution over ``[N, C, L]`` as one over ``[N, C, 1, L]``."""
    given = arguments(node)
    if len(shape_of(node)) != 3:
        raise NoIntegerForm("it is no convolution over a batch and one axis")

    def wide(values: Any) -> list[int]:
        return [1, *values] if isinstance(values, list | tuple) else [1, values]

    padding = given["padding"]
    given["padding"] = padding if isinstance(padding, str) else [0, *wide(padding)[1:]]
    given |= {name: wide(given[name]) for name in ("stride", "dilation")}
    return convolution(scope, node, given, params, added=True)


def _linear(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    given = arguments(node)
    return _product(scope, node, given["input"], constant_weight(scope, given["weight"]), given["bias"], params)


def _addmm(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    given = arguments(node)
    if (given["beta"], given["alpha"]) != (1, 1):
        raise NoIntegerForm("it has factors beta and alpha")
    return _product(scope, node, given["mat1"], addmm_weight(scope, given), given["self"], params)


def addmm_weight(scope: Scope, given: dict[str, Any]) -> Weight:
    """Return the weight of an ``addmm`` of arguments ``given``, as that of ``linear``. Raises `NoIntegerForm`."""
    return _transposed(scope, given["mat2"])


def _product(scope: Scope, node: fx.Node, x: Any, weight: Weight, bias: Any, params: Params) -> fx.Node:
    shape_of(node)
    source, of_x = scope.quantized(x)
    integers, *biases, scales = weighted(scope, weight, bias, of_x, params)
    if of_x.bits == 16:
        return scope.call(node, integer.wide_linear.default, source, integers, *biases, *scales, *out_of(params))
    return scope.call(
        node, integer.linear.default, source, integers, *biases, of_x.zero_point, *scales, *out_of(params)
    )


def constant_weight(scope: Scope, node: fx.Node) -> Weight:
    """Return what the weight ``node`` of an operator is dequantized from. Raises `NoIntegerForm`."""
    found = weight_of(node, scope.constants.value)
    if found is None:
        raise NoIntegerForm(f"its weight {node.name} is no dequantized constant of known values")
    return found


def _transposed(scope: Scope, node: fx.Node) -> Weight:
    """Return the weight of a matrix ``[K, N]`` as ``[N, K]``."""
    if _swaps_axes(node):
        return constant_weight(scope, node.all_input_nodes[0])
    found = constant_weight(scope, node)
    axis = None if found.axis is None else 1 - found.axis
    turned = found.values.t().contiguous()
    return Weight(turned, scope.constants.add(turned), found.scales, found.zero_points, axis)


def _swaps_axes(node: fx.Node) -> bool:
    """Return whether ``node`` transposes a matrix."""
    if node.target in (aten.t.default, aten.numpy_T.default):
        return True
    if node.target is aten.permute.default:
        return [axis % 2 for axis in node.args[1]] == [1, 0]  # type: ignore[union-attr, operator]
    return node.target is aten.transpose.int and {axis % 2 for axis in node.args[1:3]} == {0, 1}  # type: ignore[operator]


def weighted(scope: Scope, weight: Weight, bias: Any, of_x: Params, params: Params) -> tuple[Any, ...]:
    """Return the integers of a weight, of a bias, and of its offset, with multipliers and shifts, one or by channel.

    For int16 activations the bias is a list, and there is no offset. Results of 32 bits are sums without a bias.
    """
    if weight.values.dtype is not torch.int8:
        raise NoIntegerForm(f"its weights are {weight.values.dtype}, and not torch.int8")
    if int(weight.zero_points.abs().max()):
        worst = int(weight.zero_points[weight.zero_points.abs().argmax()])
        raise NoIntegerForm(f"its weights are asymmetric (a zero point is {worst}): quantize them symmetrically")
    if weight.axis not in (None, 0):
        raise NoIntegerForm(f"its weights have scales along axis {weight.axis}, and not along their output channels")
    channels = weight.values.shape[0]
    products = of_x.scale * weight.scales
    unscaled = params.bits == 32
    sums = _bias(scope, None if unscaled else bias, channels, products)
    # What the accumulator of a channel can hold.
    bounds = weight.values.double().abs().flatten(1).sum(1) * of_x.reach + sums.abs()
    wide = of_x.bits == 16
    if float(bounds.max()) >= 2 ** (47 if wide else 31):
        raise NoIntegerForm(f"its sums can exceed {48 if wide else 32} bits")
    ratios = [1.0] if unscaled else (products / params.scale).tolist()
    limits = bounds.tolist() if len(ratios) == channels else [float(bounds.max())]
    pairs = [multiplier_and_shift(*each, wide) for each in zip(ratios, limits, strict=True)]
    multipliers, shifts = zip(*pairs, strict=True)
    if weight.source is not None and weight.source.op == "placeholder":
        source = scope.constants.shared(weight.source, weight.values)
    else:
        source = scope.constants.add(weight.values)
    if wide:
        return source, sums.long().tolist(), (list(multipliers), list(shifts))
    offset = sums - of_x.zero_point * weight.values.double().flatten(1).sum(1)
    constants = [scope.constants.add(each.long().to(torch.int32)) for each in (sums, offset)]
    return source, constants[0], constants[1], (list(multipliers), list(shifts))


def _bias(scope: Scope, bias: Any, channels: int, scales: Tensor) -> Tensor:
    if bias is None:
        return torch.zeros(channels, dtype=torch.float64)
    values = scope.constants.value(bias)
    if values is None or values.shape != (channels,):
        raise NoIntegerForm("its bias is no constant of known values")
    return (values.double() / scales).round()


def _matmul(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    left, right = node.args[:2]
    shapes = shape_of(left), shape_of(right)
    if min(map(len, shapes)) < 2 or shapes[0][:-2] != shapes[1][:-2]:
        raise NoIntegerForm(f"its operands of sizes {shapes[0]} and {shapes[1]} are no batches of equal size")
    (a, of_a), (b, of_b) = scope.quantized(left), scope.quantized(right)
    bound = float(shapes[0][-1] * of_a.reach * of_b.reach)
    if of_a.bits != of_b.bits:
        raise NoIntegerForm(f"its operands are int{of_a.bits} and int{of_b.bits}: quantize them alike")
    scale = multiplier_and_shift(of_a.scale * of_b.scale / params.scale, bound, of_a.bits == 16)
    zero_points = [of_a.zero_point, of_b.zero_point]
    return scope.call(node, integer.matmul.default, a, b, zero_points, *scale, *out_of(params))


PRODUCTS: dict[Any, Rule] = {
    aten.conv1d.default: _convolution_of_one_axis,
    aten.conv1d.padding: _convolution_of_one_axis,
    aten.conv2d.default: _convolution,
    aten.conv2d.padding: _convolution,
    aten.convolution.default: _convolution,
    aten.linear.default: _linear,
    aten.addmm.default: _addmm,
    aten.matmul.default: _matmul,
    aten.mm.default: _matmul,
    aten.bmm.default: _matmul,
}
"""By operator."""
