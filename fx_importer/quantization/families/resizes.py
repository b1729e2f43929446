"""Nearest and bilinear resizes in the parameters of TOSA's ``resize``, and without it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import Lowerings, NoMatch, lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.integer_operators import PER_TENSOR, centered, defines, integer, requantized
from fx_importer.quantization.rule import BATCH, Family, Rule, Scope, shape_of
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of
from fx_importer.quantization.tosa_emission import emit_convolution, emit_requantized, static_shape, to_nchw, to_nhwc

_NEAREST = (aten.upsample_nearest2d.default, aten.upsample_nearest2d.vec)

_BILINEAR = (aten.upsample_bilinear2d.default, aten.upsample_bilinear2d.vec)

_MOST = 2**11
"""The largest numerator: TOSA 1.0, ``RESIZE``."""

Places = tuple[list[int], list[int], list[int], list[int]]
"""Sizes of the result, numerators and denominators, offsets and borders, by axis."""


def _nearest_places(node: fx.Node) -> Places:
    """Return where a nearest resize reads: ``floor(i * in / out)``, shifted by half a step because TOSA rounds.

    Raises:
        NoIntegerForm: if TOSA cannot express the resize.
    """
    before, after = _sizes(node)
    steps = [(2 * out, 2 * size, 1 - out) for size, out in zip(before, after, strict=True)]
    if any(_step(node, axis) != Fraction(size, out) for axis, size, out in zip((0, 1), before, after, strict=True)):
        raise NoIntegerForm("its scale factors are not the ratios of its sizes")
    if any(_rounds_away(size, out) for size, out in zip(before, after, strict=True)):
        raise NoIntegerForm(f"in float32, as eager computes places, {before} to {after} reads other elements")
    # Without a common divisor the offset would be no whole number.
    return _checked(before, after, steps)


def _rounds_away(size: int, out: int) -> bool:
    """Return whether ``floor(i * (size / out))`` differs in float32, as of 2 elements to 82."""
    places = torch.arange(out)
    rounded = (places.float() * torch.tensor(size / out, dtype=torch.float32)).long()
    return out not in (size, 2 * size) and not torch.equal(rounded, places * size // out)


def _bilinear_places(node: fx.Node) -> Places:
    """Return where a bilinear resize reads. Raises `NoIntegerForm` if TOSA cannot express it."""
    before, after = _sizes(node)
    aligned = bool(node.args[2] if len(node.args) > 2 else node.kwargs.get("align_corners"))
    steps: list[tuple[int, int, int]] = []
    for axis, (size, out) in enumerate(zip(before, after, strict=True)):
        if aligned:
            numerator, denominator, offset = max(out - 1, 1), size - 1 if out > 1 else 0, 0
        elif _step(node, axis) != Fraction(size, out):
            raise NoIntegerForm("its scale factors are not the ratios of its sizes")
        else:
            numerator, denominator, offset = 2 * out, 2 * size, size - out
        if denominator == 0:  # one element, which is read everywhere
            numerator, denominator, offset = 1, 1, 0
            if out > 1:
                raise NoIntegerForm("it repeats one element with aligned corners")
        common = math.gcd(numerator, denominator, offset)
        steps.append((numerator // common, denominator // common, offset // common))
    return _checked(before, after, steps)


def _sizes(node: fx.Node) -> tuple[list[int], list[int]]:
    before, after = shape_of(node.args[0], BATCH), shape_of(node, BATCH)
    return before[2:], after[2:]


def _step(node: fx.Node, axis: int) -> Fraction:
    """Return the step in the operand between neighbours of the result, from scale factors or sizes."""
    before, after = _sizes(node)
    last: Any = node.args[-1] if str(node.target).endswith(".vec") else None
    factors = last if isinstance(last, Sequence) and len(node.args) > 2 else node.kwargs.get("scale_factors")
    if isinstance(factors, Sequence) and all(isinstance(factor, int | float) for factor in factors):
        factor = Fraction(factors[axis])  # type: ignore[arg-type]
        return Fraction(before[axis], after[axis]) if factor * before[axis] == after[axis] else 1 / factor
    arguments = list(node.args[2:]) if node.target in _NEAREST else list(node.args[3:])
    if not str(node.target).endswith(".vec") and arguments[axis : axis + 1] not in ([], [None]):
        return 1 / Fraction(arguments[axis])  # type: ignore[arg-type]
    return Fraction(before[axis], after[axis])


def _checked(before: Sequence[int], after: Sequence[int], steps: Sequence[tuple[int, int, int]]) -> Places:
    for numerator, denominator, offset in steps:
        if numerator > _MOST or denominator >= 16 * numerator or not -numerator <= offset < 16 * numerator:
            raise NoIntegerForm(
                f"sizes {list(before)} to {list(after)} are a ratio of {numerator} to {denominator}, which is out of "
                "the range of TOSA's resize"
            )
    borders = [
        (out - 1) * denominator - (size - 1) * numerator + offset
        for size, out, (numerator, denominator, offset) in zip(before, after, steps, strict=True)
    ]
    scale = [number for numerator, denominator, _ in steps for number in (numerator, denominator)]
    return list(after), scale, [offset for *_, offset in steps], borders


def _move_nearest(scope: Scope, node: fx.Node, integers: Callable[[Any], fx.Node], params: Params | None) -> fx.Node:
    return scope.call(node, integer.resize_nearest.default, integers(node.args[0]), *_nearest_places(node))


def _fold_bilinear(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    sizes, scale, offset, border = _bilinear_places(node)
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


@defines("Tensor x, int[] sizes, int[] scale, int[] offset, int[] border")
def resize_nearest(
    x: Tensor, sizes: Sequence[int], scale: Sequence[int], offset: Sequence[int], border: Sequence[int]
) -> Tensor:
    """Return the nearest elements of ``x[N, C, H, W]`` at ``(i * denominator + offset) / numerator``.

    ``scale`` has the numerator and the denominator of each axis.
    """
    del border
    for axis in (0, 1):
        numerator, denominator = scale[2 * axis : 2 * axis + 2]
        places = (2 * (i * denominator + offset[axis]) + numerator for i in range(sizes[axis]))
        last = x.shape[2 + axis] - 1
        indices = [min(max(location // (2 * numerator), 0), last) for location in places]
        x = x.index_select(2 + axis, torch.tensor(indices, device=x.device))
    return x.clone()


@defines(f"Tensor x, int[] sizes, int[] scale, int[] offset, int[] border, int zero_point, {PER_TENSOR}")
def resize_bilinear(
    x: Tensor,
    sizes: Sequence[int],
    scale: Sequence[int],
    offset: Sequence[int],
    border: Sequence[int],
    zero_point: int,
    *out: int,
) -> Tensor:
    """Return linear interpolations of ``x[N, C, H, W]`` at ``(i * denominator + offset) / numerator``.

    Weights are multiples of one over the numerator, so that sums equal TOSA's ``resize``.
    """
    del border
    sums = centered(x, zero_point)
    for axis in (0, 1):
        numerator, denominator = scale[2 * axis : 2 * axis + 2]
        places = [divmod(i * denominator + offset[axis], numerator) for i in range(sizes[axis])]
        last, shape = x.shape[2 + axis] - 1, (1, 1, -1, 1) if axis == 0 else (1, 1, 1, -1)
        parts: list[Tensor] = []
        for step in (0, 1):
            indices = torch.tensor([min(max(first + step, 0), last) for first, _ in places], device=x.device)
            weights = [rest if step else numerator - rest for _, rest in places]
            weight = torch.tensor(weights, dtype=torch.int64, device=x.device).reshape(shape)
            parts.append(sums.index_select(2 + axis, indices) * weight)
        sums = parts[0] + parts[1]
    return requantized(sums, *out)


@lowers(integer.resize_nearest.default, into="tosa")
def tosa_resize_nearest(
    emit: TosaEmitter, x: ir.Value, _sizes: object, scale: Sequence[int], offset: Sequence[int], border: Sequence[int]
) -> ir.Value:
    """Emit a resize of channels last."""
    return to_nchw(emit, _emit_resize(emit, x, "NEAREST_NEIGHBOR", scale, offset, border))


@lowers(integer.resize_bilinear.default, into="tosa")
def tosa_resize_bilinear(
    emit: TosaEmitter,
    x: ir.Value,
    _sizes: object,
    scale: Sequence[int],
    offset: Sequence[int],
    border: Sequence[int],
    zero_point: int,
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit a resize of channels last, to i32, and a rescale."""
    sums = _emit_resize(emit, x, "BILINEAR", scale, offset, border)
    if zero_point:
        sums = emit.sub(sums, zero_point * scale[0] * scale[2])
    return to_nchw(emit, emit_requantized(emit, sums, [multiplier], [shift], *out))


def _emit_resize(
    emit: TosaEmitter, x: ir.Value, mode: str, scale: Sequence[int], offset: Sequence[int], border: Sequence[int]
) -> ir.Value:
    """Emit a resize of ``x[N, C, H, W]`` with channels last: elements of i8, or sums of i32 for the mode BILINEAR."""
    x, (batch, channels, *sizes) = to_nhwc(emit, x), emit.shape(emit.results[0])
    kind = emit.tensor([batch, *sizes, channels], emit.element(x) if mode.startswith("N") else "i32")
    operands = [x, *map(emit.tosa.const_shape, (scale, offset, border))]
    return emit.op("tosa.resize", [kind], operands, {"mode": emit.attribute(f"#tosa.resize_mode<{mode}>")}).result


# --- without tosa.resize, which Ethos-U55 and U65 do not have -------------------------------------------------------


@lowers(integer.resize_nearest.default, into="tosa")
def repeat_nearest(
    emit: TosaEmitter, x: ir.Value, _sizes: object, _scale: object, _offset: object, _border: object
) -> ir.Value:
    """Emit copies of rows and columns. No match for a factor that is not whole."""
    factors = _factors(emit, x)
    if factors is None:
        raise NoMatch("a size is not a multiple of the one before")
    rows, columns = factors
    return to_nchw(emit, _interleaved(emit, [[to_nhwc(emit, x)] * columns] * rows))


@lowers(integer.resize_bilinear.default, into="tosa")
def convolve_bilinear(
    emit: TosaEmitter,
    x: ir.Value,
    _sizes: object,
    scale: Sequence[int],
    offset: Sequence[int],
    _border: object,
    zero_point: int,
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit a depthwise convolution for each position between elements, with the sums of ``tosa.resize``.

    No match for a factor that is not whole, and for weights beyond i8.
    """
    factors, weight = _factors(emit, x), scale[0] * scale[2]
    whole = factors is not None and all(
        scale[2 * axis] == factor * scale[2 * axis + 1] for axis, factor in enumerate(factors)
    )
    if factors is None or not whole or weight > 127:
        raise NoMatch("a size is not a multiple of the one before, or weights are beyond i8")
    wide, channels = _with_edges(emit, to_nhwc(emit, x)), emit.shape(x)[1] or 0
    taps = [_taps(factor, scale[2 * axis], scale[2 * axis + 1], offset[axis]) for axis, factor in enumerate(factors)]
    bias = emit.tosa.const_array(np.zeros(channels, np.int32))

    def place(row: Sequence[int], column: Sequence[int]) -> ir.Value:
        weights = np.broadcast_to(np.outer(row, column).astype(np.int8), (channels, 1, 3, 3))
        filters = emit.tosa.const_array(np.ascontiguousarray(weights))
        sums = emit_convolution(emit, wide, filters, bias, (1, 1), (0, 0, 0, 0), (1, 1), channels, zero_point)
        return emit_requantized(emit, sums, [multiplier], [shift], *out)

    return to_nchw(emit, _interleaved(emit, [[place(row, column) for column in taps[1]] for row in taps[0]]))


def _factors(emit: TosaEmitter, x: ir.Value) -> tuple[int, int] | None:
    """Return how often the rows and columns of ``x[N, C, H, W]`` are in the result; None if that is not whole."""
    before, after = (static_shape(emit, tensor, 2) for tensor in (x, emit.results[0]))
    if any(out % size for size, out in zip(before, after, strict=True)):
        return None
    return after[0] // before[0], after[1] // before[1]


def _taps(factor: int, numerator: int, denominator: int, offset: int) -> list[list[int]]:
    """Return, for each of ``factor`` results of an element, the weights of the one before, itself and the next."""
    taps: list[list[int]] = []
    for number in range(factor):
        first, rest = divmod(number * denominator + offset, numerator)
        weights = [0, 0, 0, 0]  # no element has the last weight, which stays zero
        weights[first + 1 : first + 3] = numerator - rest, rest
        taps.append(weights[:3])
    return taps


def _with_edges(emit: TosaEmitter, x: ir.Value) -> ir.Value:
    """Emit ``x[N, H, W, C]`` with its first and last rows and columns twice."""
    for axis in (1, 2):
        sizes = list(emit.shape(x))
        one = [*sizes[:axis], 1, *sizes[axis + 1 :]]
        last = [static_shape(emit, x, 1)[axis - 1] - 1 if dim == axis else 0 for dim in range(4)]
        x = emit.concat([emit.slice(x, [0] * 4, one), x, emit.slice(x, last, one)], axis)
    return x


def _interleaved(emit: TosaEmitter, parts: Sequence[Sequence[ir.Value]]) -> ir.Value:
    """Interleave the rows and columns of ``parts[row][column]``, each ``[N, H, W, C]``."""
    height, width, channels = static_shape(emit, parts[0][0], 1)
    wide = [emit.reshape(emit.concat(list(row), 3), [-1, height, width * len(row), channels]) for row in parts]
    result = emit.concat(wide, 2)
    return emit.reshape(result, [-1, height * len(parts), width * len(parts[0]), channels])


WITHOUT_RESIZE = Lowerings((repeat_nearest, convolve_bilinear))
"""Rules for processors without ``tosa.resize``."""

FAMILY = Family(
    rules=dict.fromkeys(_BILINEAR, Rule(_fold_bilinear, shares_scale=True)),
    moves=dict.fromkeys(_NEAREST, _move_nearest),
    operators=(resize_nearest, resize_bilinear),
    lowerings=(tosa_resize_nearest, tosa_resize_bilinear),
)
