"""Softmax of int8 and int16: powers from tables, times the reciprocal of their sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.families.elementwise import emit_interpolated
from fx_importer.quantization.integer_operators import PER_TENSOR, defines, integer, requantized
from fx_importer.quantization.rule import Family, Rule, Scope, axes_before, shape_of
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of, rescaled
from fx_importer.quantization.tosa_emission import emit_requantized, emit_rescale
from fx_importer.quantization.wide_tables import (
    FRACTION,
    bytes_of,
    emit_byte_lookup,
    emit_product,
    emit_right_shift,
    emit_upper_byte,
    interpolate,
    lookup_bytes,
)

_POWER = 2**15 - 1
"""The power of zero, of 15 bits; a sum of 2¹⁵ of them stays below 2³⁰."""


def _scores_of(softmax: fx.Node) -> tuple[fx.Node, fx.Node | None]:
    """Return the operand of a softmax, and its mask if the operand is ``where(mask, x, -inf)``."""
    source = softmax.args[0]
    assert isinstance(source, fx.Node)
    if source.target is aten.where.ScalarOther and source.args[2] == -math.inf:
        return source.args[1], source.args[0]  # type: ignore[return-value]
    return source, None


def _sizes_and_axis(softmax: fx.Node) -> tuple[list[Any], int]:
    """Return the sizes of the value of a softmax, and its axis, whose size is static."""
    axis, rank = softmax.args[1], len(axes_before(softmax, 0))
    assert isinstance(axis, int)
    axis %= max(rank, 1)
    return shape_of(softmax, set(range(rank)) - {axis}), axis


def _fold_softmax(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    sizes, axis = _sizes_and_axis(node)
    if not sizes or sizes[axis] > 2**15:
        raise NoIntegerForm(f"the sum along its axis of sizes {sizes} can exceed 32 bits")
    scores, mask = _scores_of(node)
    x, of_x = scope.quantized(scores)
    scale = multiplier_and_shift(2.0**-15 / params.scale, 2.0**15)
    divisor = [scope.constants.add(table) for table in _reciprocal_table()]
    if of_x.bits == 16:
        return _fold_wide_softmax(scope, node, x, of_x, divisor, mask, (*scale, *out_of(params)))
    powers = (torch.arange(-255, 1).double() * of_x.scale).exp().mul(_POWER).round().long()
    tables = [scope.constants.add(table) for table in bytes_of(powers)]
    arguments = (divisor, mask, axis)
    return scope.call(node, integer.softmax.default, x, *tables, *arguments, *scale, *out_of(params))


def _fold_wide_softmax(
    scope: Scope,
    node: fx.Node,
    x: fx.Node,
    of_x: Params,
    divisor: list[fx.Node],
    mask: fx.Node | None,
    out: tuple[int, ...],
) -> fx.Node:
    """Emit a softmax of int16; powers below e⁻¹¹ vanish in 15 bits."""
    _, axis = _sizes_and_axis(node)
    places = torch.arange(513).double() * 128 - 2**15
    step = 11.0 / 2**16
    powers = ((places - (2**15 - 1)) * step).clamp(max=0).exp().mul(_POWER).round()
    by = multiplier_and_shift(of_x.scale / step, 2.0**16)
    entries = scope.constants.add(powers.to(torch.int16))
    return scope.call(node, integer.wide_softmax.default, x, entries, divisor, *by, mask, axis, *out)


@defines(f"Tensor x, Tensor high, Tensor low, Tensor[] reciprocals, Tensor? mask, int axis, {PER_TENSOR}")
def softmax(
    x: Tensor,
    high: Tensor,
    low: Tensor,
    reciprocals: Sequence[Tensor],
    mask: Tensor | None,
    axis: int,
    *out: int,
) -> Tensor:
    """Return powers of ``x`` minus its largest element, over their sum along ``axis``, with a scale of 2⁻¹⁵.

    ``high`` and ``low`` are tables of the bytes of a power of 15 bits, by the difference plus 255; ``low`` is less 128.
    ``reciprocals`` is `_reciprocal_table`. Elements where ``mask`` is false have the power zero; the result is
    zero where all have.
    """
    if mask is not None:
        x = torch.where(mask, x, -128)
    index = x.to(torch.int32) - x.amax(axis, keepdim=True).to(torch.int32) + 255
    return requantized(_quotients(lookup_bytes(index, high, low), reciprocals, mask, axis), *out)


def _quotients(powers: Tensor, reciprocals: Sequence[Tensor], mask: Tensor | None, axis: int) -> Tensor:
    """Return ``powers`` of 15 bits over their sum along ``axis``, with 15 bits.

    The sum is normalized to 31 bits; its reciprocal comes from a table of 15 bits and a step of Newton's method.
    """
    if mask is not None:
        powers = torch.where(mask, powers, 0)
    mantissa = powers.sum(axis, keepdim=True).clamp(min=1)
    zeros = torch.zeros_like(mantissa)
    for bits in (16, 8, 4, 2, 1):
        step = (mantissa < 2 ** (31 - bits)) * bits
        mantissa, zeros = mantissa << step, zeros + step
    guess = lookup_bytes(mantissa >> 23, *reciprocals)
    root = rescaled(guess * (2**30 - rescaled(mantissa * guess, 1, 16)), 1, 14)
    return (((rescaled(powers * root, 1, 15) * 2) >> (30 - zeros)) + 1) >> 1


def _reciprocal_table() -> list[Tensor]:
    """Return the bytes of reciprocals with 14 fractional bits of ``(i + 0.5) / 256``, for i in 128..255."""
    table = (256 / (torch.arange(256).clamp(min=128).double() + 0.5)).mul(2**14).round().long()
    return bytes_of(table)


@defines(
    "Tensor x, Tensor entries, Tensor[] reciprocals, int place_multiplier, int place_shift, Tensor? mask, int axis, "
    f"{PER_TENSOR}"
)
def wide_softmax(
    x: Tensor,
    entries: Tensor,
    reciprocals: Sequence[Tensor],
    place_multiplier: int,
    place_shift: int,
    mask: Tensor | None,
    axis: int,
    *out: int,
) -> Tensor:
    """Return powers of ``x`` minus its largest element, over their sum along ``axis``, with a scale of 2⁻¹⁵.

    ``entries`` is a table of powers with 15 bits of differences, rescaled and plus 32767. See `softmax`.
    """
    if mask is not None:
        x = torch.where(mask, x, -(2**15))
    below = x.to(torch.int32) - x.amax(axis, keepdim=True).to(torch.int32)
    index = requantized(below, place_multiplier, place_shift, 2**15 - 1, -(2**15), 2**15 - 1, 16)
    powers = rescaled(interpolate(index, entries), 2**30, 30 + FRACTION)
    return requantized(_quotients(powers, reciprocals, mask, axis), *out)


_ONE = ([2**30], [30])


@lowers(integer.softmax.default, into="tosa")
def tosa_softmax(
    emit: TosaEmitter,
    x: ir.Value,
    high: ir.Value,
    low: ir.Value,
    reciprocals: Sequence[ir.Value],
    mask: ir.Value | None,
    axis: int,
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit differences from the largest element, as i8, powers of them, and their quotients with the sum."""
    if mask is not None:
        x = emit.select(mask, x, emit.constant(-128, "i8"))
    largest = emit.amax(x, [axis], keepdim=True)
    below = emit.sub(emit_rescale(emit, x, "i32", *_ONE, 0, 0), emit_rescale(emit, largest, "i32", *_ONE, 0, 0))
    index = emit_rescale(emit, below, "i8", *_ONE, 0, 127)
    powers = emit_byte_lookup(emit, index, high, low)
    return emit_requantized(emit, _emit_quotients(emit, powers, reciprocals, mask, axis), [multiplier], [shift], *out)


def _emit_quotients(
    emit: TosaEmitter, powers: ir.Value, reciprocals: Sequence[ir.Value], mask: ir.Value | None, axis: int
) -> ir.Value:
    """Emit powers of 15 bits over their sums along ``axis``, with 15 bits."""
    if mask is not None:
        powers = emit.select(mask, powers, emit.constant(0, "i32"))
    sums = emit.maximum(emit.sum(powers, [axis], keepdim=True), 1)
    zeros = emit.value("tosa.clz", sums.type, sums)
    mantissa = emit.value("tosa.logical_left_shift", sums.type, sums, emit.sub(zeros, 1))
    guess = emit_byte_lookup(emit, emit_upper_byte(emit, mantissa), *reciprocals)
    error = emit_product(emit, mantissa, guess, 16)
    reciprocal = emit_product(emit, guess, emit.sub(emit.constant(2**30, "i32"), error), 14)
    wide = emit_product(emit, powers, reciprocal, 15)
    return emit_right_shift(emit, wide, emit.sub(emit.constant(31, "i32"), zeros), rounding=True)


@lowers(integer.wide_softmax.default, into="tosa")
def tosa_wide_softmax(
    emit: TosaEmitter,
    x: ir.Value,
    entries: ir.Value,
    reciprocals: Sequence[ir.Value],
    place_multiplier: int,
    place_shift: int,
    mask: ir.Value | None,
    axis: int,
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit differences from the largest element, powers of them, and their quotients with the sum."""
    if mask is not None:
        x = emit.select(mask, x, emit.constant(-(2**15), "i16"))
    one = ([2**30], [30], 0, 0)
    largest = emit.amax(x, [axis], keepdim=True)
    below = emit.sub(emit_rescale(emit, x, "i32", *one), emit_rescale(emit, largest, "i32", *one))
    # A zero point of i16 is zero: it is added in i32.
    index = emit.add(emit_rescale(emit, below, "i32", [place_multiplier], [place_shift], 0, 0), 2**15 - 1)
    index = emit_rescale(emit, emit.maximum(index, -(2**15)), "i16", *one)
    powers = emit_rescale(emit, emit_interpolated(emit, index, entries), "i32", [2**30], [37], 0, 0)
    return emit_requantized(emit, _emit_quotients(emit, powers, reciprocals, mask, axis), [multiplier], [shift], *out)


_RULE = Rule(_fold_softmax, inputs=lambda node: [_scores_of(node)[0]], quantizes_constants=False)
FAMILY = Family(
    rules={aten.softmax.int: _RULE, aten._softmax.default: _RULE},
    operators=(softmax, wide_softmax),
    lowerings=(tosa_softmax, tosa_wide_softmax),
    result_scales={aten.softmax.int: (1 / 256, -128), aten._softmax.default: (1 / 256, -128)},
)
