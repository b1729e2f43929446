"""Rules of sums, differences and products of elements, of reductions, and of pools of means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.operators.int8 import integer
from fx_importer.quantization.rules.scope import Rule, Scope, arguments
from fx_importer.quantization.rules.windows import pair, pool_windows, shape_of
from fx_importer.quantization.scales import ADDED_BITS, NoIntegerForm, Params, multiplier_and_shift, out_of


def _binary(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    kind = str(node.target).split(".")[1]
    left, right = node.args[:2]
    if node.kwargs.get("alpha", 1) != 1:
        raise NoIntegerForm("it has a factor alpha")
    (a, of_a), (b, of_b) = scope.quantized(left), scope.quantized(right)
    shape_of(node)
    if kind == "mul":
        scales, out = [1.0, 1.0], of_a.scale * of_b.scale / params.scale
        bound = float(of_a.reach * of_b.reach)
    else:
        common = 2 * max(of_a.scale, of_b.scale) / 2 ** ADDED_BITS[max(of_a.bits, of_b.bits)]
        scales, out = [of_a.scale / common, of_b.scale / common], common / params.scale
        bound = scales[0] * of_a.reach + scales[1] * of_b.reach + 2
    parts = [multiplier_and_shift(scale, each.reach) for scale, each in zip(scales, (of_a, of_b), strict=True)]
    multipliers, shifts = ([each[i] for each in parts] for i in (0, 1))
    zero_points = [of_a.zero_point, of_b.zero_point]
    scale = multiplier_and_shift(out, bound)
    return scope.call(
        node, integer.binary.default, kind, a, b, zero_points, multipliers, shifts, *scale, *out_of(params)
    )


def _sum(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    given = arguments(node)
    if given["dtype"] not in (None, torch.float32):
        raise NoIntegerForm(f"it computes in {given['dtype']}")
    mean = node.target is aten.mean.dim
    return _reduced(scope, node, given["dim"], given["keepdim"], params, mean=mean)


def _sum_of_all(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    if node.kwargs.get("dtype") not in (None, torch.float32):
        raise NoIntegerForm(f"it computes in {node.kwargs['dtype']}")
    return _reduced(scope, node, [], False, params, mean=node.target is aten.mean.default)


def _reduced(scope: Scope, node: fx.Node, axes: Any, keepdim: bool, params: Params, *, mean: bool) -> fx.Node:
    sizes = shape_of(node.args[0])
    axes = sorted({axis % len(sizes) for axis in ([axes] if isinstance(axes, int) else axes or range(len(sizes)))})
    count = math.prod(sizes[axis] for axis in axes)
    x, of_x = scope.quantized(node.args[0])
    ratio = of_x.scale / params.scale / (count if mean else 1)
    scale = multiplier_and_shift(ratio, float(count * of_x.reach))
    return scope.call(node, integer.sum.default, x, axes, keepdim, of_x.zero_point, *scale, *out_of(params))


def _adaptive_pool(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    sizes, counts = shape_of(node.args[0]), pair(node.args[1])
    if counts == [1, 1]:
        return _reduced(scope, node, [len(sizes) - 2, len(sizes) - 1], True, params, mean=True)
    if len(sizes) != 4 or any(size % count for size, count in zip(sizes[2:], counts, strict=True)):
        raise NoIntegerForm(f"its windows differ: sizes {sizes[2:]} to {counts}")
    kernel = [size // count for size, count in zip(sizes[2:], counts, strict=True)]
    return _averaged(scope, node, kernel, kernel, [0, 0, 0, 0], params)


def _average_pool(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    given = arguments(node)
    kernel, stride, sides = pool_windows(node)
    if given["divisor_override"]:
        raise NoIntegerForm("it has a divisor of its own")
    rows, columns = pair(given["padding"])
    if not given["count_include_pad"] or not (rows or columns):
        return _averaged(scope, node, kernel, stride, sides, params)
    # TOSA divides by the elements without the padding, and so does eager by those beyond it, of ``ceil_mode``.
    beyond = [each - by for each, by in zip(sides, (rows, rows, columns, columns), strict=True)]
    return _averaged(scope, node, kernel, stride, beyond, params, [columns, columns, rows, rows])


def _averaged(
    scope: Scope,
    node: fx.Node,
    kernel: list[int],
    stride: list[int],
    sides: list[int],
    params: Params,
    padded: Sequence[int] = (),
) -> fx.Node:
    """Emit means of windows; zeros that count are ``padded`` first, as `torch.nn.functional.pad` takes them."""
    x, of_x = scope.quantized(node.args[0])
    if of_x.bits == 16:
        raise NoIntegerForm("average pools of int16 have no integer form")
    if of_x.scale > params.scale * 1.001:  # what was rounded once would be scaled up
        raise NoIntegerForm("its result has a finer scale than its operand: let both share one")
    if padded:
        x = scope.call(node, aten.constant_pad_nd.default, x, padded, of_x.zero_point)
    pooled = scope.call(node, integer.avg_pool2d.default, x, kernel, stride, sides, of_x.zero_point)
    if of_x == params:
        return pooled
    scale = multiplier_and_shift(of_x.scale / params.scale, 255)
    return scope.call(node, integer.rescale.default, pooled, of_x.zero_point, *scale, *out_of(params))


ARITHMETIC: dict[Any, Rule] = {
    aten.add.Tensor: _binary,
    aten.sub.Tensor: _binary,
    aten.mul.Tensor: _binary,
    aten.mean.dim: _sum,
    aten.sum.dim_IntList: _sum,
    aten.adaptive_avg_pool2d.default: _adaptive_pool,
    aten.avg_pool2d.default: _average_pool,
    aten.mean.default: _sum_of_all,
    aten.sum.default: _sum_of_all,
}
"""By operator."""
