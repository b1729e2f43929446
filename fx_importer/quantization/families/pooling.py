"""Maximum and average pools."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.families.reductions import fold_reduction
from fx_importer.quantization.integer_operators import defines, integer, pad_image, requantized
from fx_importer.quantization.rule import BATCH, Family, Rule, Scope, arguments, shape_of
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of, reciprocal
from fx_importer.quantization.tosa_emission import emit_exact_windows, emit_scalar, to_nchw, to_nhwc
from fx_importer.quantization.windows import pair, pool_windows


def _move_max_pool(scope: Scope, node: fx.Node, integers: Callable[[Any], fx.Node], params: Params | None) -> fx.Node:
    windows = pool_windows(node)
    return scope.call(node, integer.max_pool2d.default, integers(node.args[0]), *windows)


def _fold_adaptive_pool(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    sizes, counts = shape_of(node.args[0], BATCH), pair(node.args[1])
    if counts == [1, 1]:
        return fold_reduction(scope, node, [len(sizes) - 2, len(sizes) - 1], True, params, mean=True)
    if len(sizes) != 4 or any(size % count for size, count in zip(sizes[2:], counts, strict=True)):
        raise NoIntegerForm(f"its windows differ: sizes {sizes[2:]} to {counts}")
    kernel = [size // count for size, count in zip(sizes[2:], counts, strict=True)]
    return _fold_average(scope, node, kernel, kernel, [0, 0, 0, 0], params)


def _fold_average_pool(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    passed = arguments(node)
    kernel, stride, sides = pool_windows(node)
    if passed["divisor_override"]:
        raise NoIntegerForm("it has a divisor of its own")
    rows, columns = pair(passed["padding"])
    if not passed["count_include_pad"] or not (rows or columns):
        return _fold_average(scope, node, kernel, stride, sides, params)
    # TOSA divides by the elements without the padding, and so does eager by those beyond it, of ``ceil_mode``.
    beyond = [side - by for side, by in zip(sides, (rows, rows, columns, columns), strict=True)]
    return _fold_average(scope, node, kernel, stride, beyond, params, [columns, columns, rows, rows])


def _fold_average(
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
    if of_x.scale > params.scale * 1.001:  # values that were rounded would be scaled up
        raise NoIntegerForm("its result has a finer scale than its operand: let both share one")
    if padded:
        x = scope.call(node, aten.constant_pad_nd.default, x, padded, of_x.zero_point)
    pooled = scope.call(node, integer.avg_pool2d.default, x, kernel, stride, sides, of_x.zero_point)
    if of_x == params:
        return pooled
    scale = multiplier_and_shift(of_x.scale / params.scale, 2.0**of_x.bits - 1)
    return scope.call(node, integer.rescale.default, pooled, of_x.zero_point, *scale, *out_of(params))


@defines("Tensor x, int[] kernel, int[] stride, int[] padding")
def max_pool2d(x: Tensor, kernel: list[int], stride: list[int], padding: Sequence[int]) -> Tensor:
    """Return the largest elements of windows of ``x[N, C, H, W]``."""
    padded = pad_image(x, padding, torch.iinfo(x.dtype).min) if any(padding) else x
    for axis, size, step in zip((2, 3), kernel, stride, strict=True):
        last = (padded.shape[axis] - size) // step * step + 1
        padded = functools.reduce(torch.maximum, (padded[_along(axis, i, i + last, step)] for i in range(size)))
    return padded.clone()


@defines("Tensor x, int[] kernel, int[] stride, int[] padding, int zero_point")
def avg_pool2d(x: Tensor, kernel: list[int], stride: list[int], padding: Sequence[int], zero_point: int) -> Tensor:
    """Return the means of windows of ``x[N, C, H, W]``; the padding does not count."""
    sizes, channels = x.shape[2:], x.shape[1]
    padded = pad_image(x, padding, zero_point) if any(padding) else x
    ones = torch.ones([channels, 1, *kernel], dtype=torch.int8, device=x.device)
    sums = integer.conv2d_sums(padded, ones, stride, [1, 1], channels) - zero_point * kernel[0] * kernel[1]
    ends = torch.iinfo(x.dtype)
    out = zero_point, ends.min, ends.max, ends.bits
    if not any(padding):
        return requantized(sums, *reciprocal(kernel[0] * kernel[1]), *out)
    rows, columns = (
        [min(i * step + window - before, size) - max(i * step - before, 0) for i in range(count)]
        for size, window, step, before, count in zip(sizes, kernel, stride, padding[::2], sums.shape[2:], strict=True)
    )
    scales = zip(*(reciprocal(max(high * wide, 1)) for high in rows for wide in columns), strict=True)
    multiplier, shift = (torch.tensor(scale, device=x.device).reshape(len(rows), len(columns)) for scale in scales)
    return requantized(sums, multiplier, shift, *out)


def _along(axis: int, start: int, stop: int, step: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(start, stop, step))


@lowers(integer.max_pool2d.default, into="tosa")
def tosa_max_pool2d(
    emit: TosaEmitter, x: ir.Value, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> ir.Value:
    """Emit a pool of channels last."""
    x, pad = emit_exact_windows(emit, to_nhwc(emit, x), kernel, stride, padding)
    attributes = _windows(emit, kernel, stride, pad)
    return to_nchw(emit, emit.op("tosa.max_pool2d", [_pooled(emit, x)], [x], attributes).result)


@lowers(integer.avg_pool2d.default, into="tosa")
def tosa_avg_pool2d(
    emit: TosaEmitter, x: ir.Value, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], zero: int
) -> ir.Value:
    """Emit a pool of channels last."""
    x, pad = emit_exact_windows(emit, to_nhwc(emit, x), kernel, stride, padding)
    attributes = _windows(emit, kernel, stride, pad) | {"acc_type": emit.attribute("i32")}
    zeros = [emit_scalar(emit, zero, emit.element(x))] * 2
    return to_nchw(emit, emit.op("tosa.avg_pool2d", [_pooled(emit, x)], [x, *zeros], attributes).result)


def _pooled(emit: TosaEmitter, x: ir.Value) -> ir.Type:
    """Return the type of a pool of ``x[N, H, W, C]``."""
    batch, channels, height, width = emit.shape(emit.results[0])
    return emit.tensor([batch, height, width, channels], emit.element(x))


def _windows(
    emit: TosaEmitter, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> dict[str, ir.Attribute]:
    return {"kernel": emit.array(kernel), "stride": emit.array(stride), "pad": emit.array(padding)}


FAMILY = Family(
    rules={
        aten.adaptive_avg_pool2d.default: Rule(_fold_adaptive_pool, shares_scale=True),
        aten.avg_pool2d.default: Rule(_fold_average_pool, shares_scale=True),
    },
    moves={aten.max_pool2d.default: _move_max_pool},
    operators=(max_pool2d, avg_pool2d),
    lowerings=(tosa_max_pool2d, tosa_avg_pool2d),
)
