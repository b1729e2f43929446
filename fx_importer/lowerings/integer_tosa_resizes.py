"""Resizes of i8 by whole factors in TOSA without ``tosa.resize``, which Ethos-U55 and U65 do not have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fx_importer.lowerings.integer_tosa import result_of
from fx_importer.lowerings.integer_tosa_windows import convolution, nchw, nhwc
from fx_importer.lowerings.lowering_registry import Lowerings
from fx_importer.lowerings.lowering_rules import NoMatch, lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization import integer


@lowers(integer.resize_nearest.default, into="tosa")
def repeat_nearest(
    emit: TosaEmitter, x: ir.Value, _sizes: object, _scale: object, _offset: object, _border: object
) -> ir.Value:
    """Emit copies of rows and columns. No match for a factor that is not whole."""
    factors = _factors(emit, x)
    if factors is None:
        raise NoMatch("a size is no multiple of the one before")
    rows, columns = factors
    return nchw(emit, _interleaved(emit, [[nhwc(emit, x)] * columns] * rows))


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
    """Emit a depthwise convolution for each place between elements, whose sums are those of ``tosa.resize``.

    No match for a factor that is not whole, and for weights beyond i8.
    """
    factors, weight = _factors(emit, x), scale[0] * scale[2]
    whole = factors is not None and all(
        scale[2 * axis] == factor * scale[2 * axis + 1] for axis, factor in enumerate(factors)
    )
    if factors is None or not whole or weight > 127:
        raise NoMatch("a size is no multiple of the one before, or weights are beyond i8")
    wide, channels = _with_edges(emit, nhwc(emit, x)), emit.shape(x)[1] or 0
    taps = [_taps(factor, scale[2 * axis], scale[2 * axis + 1], offset[axis]) for axis, factor in enumerate(factors)]
    bias = emit.tosa.const_array(np.zeros(channels, np.int32))

    def place(row: Sequence[int], column: Sequence[int]) -> ir.Value:
        weights = np.broadcast_to(np.outer(row, column).astype(np.int8), (channels, 1, 3, 3))
        filters = emit.tosa.const_array(np.ascontiguousarray(weights))
        sums = convolution(emit, wide, filters, bias, (1, 1), (0, 0, 0, 0), (1, 1), channels, zero_point)
        return result_of(emit, sums, [multiplier], [shift], *out)

    return nchw(emit, _interleaved(emit, [[place(row, column) for column in taps[1]] for row in taps[0]]))


def _factors(emit: TosaEmitter, x: ir.Value) -> tuple[int, int] | None:
    """Return how often the rows and columns of ``x[N, C, H, W]`` are in the result; None if that is not whole."""
    before, after = ([size or 0 for size in shape[2:]] for shape in (emit.shape(x), emit.shape(emit.results[0])))
    if any(out % size for size, out in zip(before, after, strict=True)):
        return None
    return after[0] // before[0], after[1] // before[1]


def _taps(factor: int, numerator: int, denominator: int, offset: int) -> list[list[int]]:
    """Return, for each of ``factor`` results of an element, the weights of the one before, itself and the next."""
    found: list[list[int]] = []
    for place in range(factor):
        first, rest = divmod(place * denominator + offset, numerator)
        weights = [0, 0, 0, 0]  # the last one is that of no element: its weight is zero
        weights[first + 1 : first + 3] = numerator - rest, rest
        found.append(weights[:3])
    return found


def _with_edges(emit: TosaEmitter, x: ir.Value) -> ir.Value:
    """Emit ``x[N, H, W, C]`` with its first and last rows and columns twice."""
    for axis in (1, 2):
        sizes = [size or 0 for size in emit.shape(x)]
        one = [*sizes[:axis], 1, *sizes[axis + 1 :]]
        last = [sizes[axis] - 1 if each == axis else 0 for each in range(4)]
        x = emit.concat([emit.slice(x, [0] * 4, one), x, emit.slice(x, last, one)], axis)
    return x


def _interleaved(emit: TosaEmitter, parts: Sequence[Sequence[ir.Value]]) -> ir.Value:
    """Emit the tensor whose rows and columns are those of ``parts[row][column]``, of ``[N, H, W, C]``, in turns."""
    batch, height, width, channels = (size or 0 for size in emit.shape(parts[0][0]))
    wide = [emit.reshape(emit.concat(list(row), 3), [batch, height, width * len(row), channels]) for row in parts]
    result = emit.concat(wide, 2)
    return emit.reshape(result, [batch, height * len(parts), width * len(parts[0]), channels])


WITHOUT_RESIZE = Lowerings((repeat_nearest, convolve_bilinear))
"""Rules for processors without ``tosa.resize``."""
