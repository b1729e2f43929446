"""Layer, group and RMS norms of int8."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.integer_operators import PER_TENSOR, centered, defines, integer, requantized
from fx_importer.quantization.rule import BATCH, Family, Rule, Scope, arguments, axes_before, shape_of
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of, rescaled
from fx_importer.quantization.tosa_emission import emit_requantized, emit_rescale
from fx_importer.quantization.wide_tables import (
    bytes_of,
    emit_byte_lookup,
    emit_product,
    emit_right_shift,
    emit_upper_byte,
    lookup_bytes,
)

_GAIN_BITS = 20
"""Bits of the largest factor of an element."""

_SUM_BITS = 30
"""Bits of results before the last rescale."""


def _fold_layer_norm(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    passed = arguments(node)
    axes = len(passed["normalized_shape"])
    shape = shape_of(node, axes_before(node, axes))
    x, of_x = scope.quantized(passed["input"])
    gain, offset = (_known(scope, passed[name]) for name in ("weight", "bias"))
    last = list(range(len(shape) - axes, len(shape)))
    return _fold_normalize(scope, node, x, of_x, last, True, gain, offset, passed["eps"], params)


def _fold_rms_norm(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    passed = arguments(node)
    axes = len(passed["normalized_shape"])
    shape = shape_of(node, axes_before(node, axes))
    x, of_x = scope.quantized(passed["input"])
    eps = torch.finfo(torch.float32).eps if passed["eps"] is None else passed["eps"]
    last = list(range(len(shape) - axes, len(shape)))
    return _fold_normalize(scope, node, x, of_x, last, False, _known(scope, passed["weight"]), None, eps, params)


def _fold_group_norm(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    passed = arguments(node)
    channels, *sizes = shape_of(node, BATCH)[1:]
    groups = passed["num_groups"]
    inner = [groups, channels // groups, math.prod(sizes)]
    x, of_x = scope.quantized(passed["input"])
    factors = [_known(scope, passed[name]) for name in ("weight", "bias")]
    gain, offset = (None if factor is None else factor.reshape(*inner[:2], 1) for factor in factors)
    x = scope.call(node, aten.reshape.default, x, [-1, *inner])
    made = _fold_normalize(scope, node, x, of_x, [2, 3], True, gain, offset, passed["eps"], params)
    return scope.call(node, aten.reshape.default, made, [-1, channels, *sizes])


def _known(scope: Scope, factor: Any) -> Tensor | None:
    if factor is None:
        return None
    value = scope.constants.value(factor)
    if value is None:
        raise NoIntegerForm(f"its factor {factor.name} is not a constant of known values")
    return value.double()


def _fold_normalize(
    scope: Scope,
    node: fx.Node,
    x: fx.Node,
    of_x: Params,
    axes: list[int],
    centers: bool,
    gain: Tensor | None,
    offset: Tensor | None,
    eps: float,
    params: Params,
) -> fx.Node:
    """Emit the normalization of ``x`` along ``axes``; ``gain`` and ``offset`` broadcast to it."""
    rank = len(axes_before(x, 0))
    sizes = shape_of(x, set(range(rank)) - set(axes))
    count = math.prod(sizes[axis] for axis in axes)
    fraction = 15 - of_x.reach.bit_length()
    halvings = max((count - 1).bit_length(), 2)
    mean = multiplier_and_shift(2.0**fraction / count, float(count * of_x.reach))
    least = round(eps / of_x.scale**2 * 2.0 ** (2 * fraction) * count / 2**halvings)
    if least >= 2**30:
        raise NoIntegerForm(f"its eps {eps} is beyond the square of any value of its operand")
    gain = torch.ones(1, dtype=torch.float64) if gain is None else gain
    offset = torch.zeros(1, dtype=torch.float64) if offset is None else offset
    gain, offset = gain / params.scale, offset / params.scale
    bound = math.sqrt(count) * float(gain.abs().max()) + float(offset.abs().max()) + 1
    bits = min(_SUM_BITS - math.ceil(math.log2(bound)), 20)
    factor = gain * math.sqrt(count / 2**halvings) * 2.0 ** (bits - ROOT_BITS)
    shift = min(max(_GAIN_BITS - math.ceil(math.log2(max(float(factor.abs().max()), 1e-30))), 0), 62)
    scale = multiplier_and_shift(2.0**-bits, bound * 2**bits)
    whole = [(factor * 2.0**shift).round(), (offset * 2.0**bits).round()]
    constants = [scope.constants.add(_of_rank(value.to(torch.int32), rank)) for value in whole]
    tables = [scope.constants.add(table) for table in _root_table()]
    arguments = (axes, centers, of_x.zero_point, fraction, *mean, halvings, least, shift)
    return scope.call(node, integer.normalize.default, x, *tables, *constants, *arguments, *scale, *out_of(params))


def _of_rank(x: Tensor, rank: int) -> Tensor:
    return x.reshape([1] * (rank - x.dim()) + list(x.shape))


ROOT_BITS = 14.5
"""Fractional bits of a normalized element; `normalize`."""


@defines(
    "Tensor x, Tensor high, Tensor low, Tensor gain, Tensor offset, int[] axes, bool centers, int zero_point, "
    f"int fraction, int mean_multiplier, int mean_shift, int halvings, int eps, int gain_shift, {PER_TENSOR}"
)
def normalize(
    x: Tensor,
    high: Tensor,
    low: Tensor,
    gain: Tensor,
    offset: Tensor,
    axes: list[int],
    centers: bool,
    zero_point: int,
    fraction: int,
    mean_multiplier: int,
    mean_shift: int,
    halvings: int,
    eps: int,
    gain_shift: int,
    *out: int,
) -> Tensor:
    """Return ``x`` over the root of the mean of its squares along ``axes``, times ``gain``, plus ``offset``.

    With ``centers``, ``x`` is less its mean first. Differences have ``fraction`` more bits, 16 in all. Their squares
    are halved ``halvings`` times and added; the reciprocal root of the sum, which is normalized to 29..31 bits, comes
    from a table of 15 bits, in the bytes ``high`` and ``low``, and a step of Newton's method. A quotient has
    `ROOT_BITS` fractional bits, less the root of the ratio of the count of elements and ``2 ** halvings``, which is in
    ``gain``. The product with ``gain`` is halved ``gain_shift`` times.
    """
    wide = centered(x, zero_point)
    parts = rescaled(wide, 2**30, 30 - fraction)
    if centers:
        parts = parts - rescaled(wide.sum(axes, keepdim=True), mean_multiplier, mean_shift)
    squares = rescaled(parts * parts, 2**30, 30 + halvings).sum(axes, keepdim=True)
    sums = (squares + eps).clamp(min=1)
    pairs = torch.zeros_like(sums)
    for bits in range(29, 0, -2):  # half of the leading zeros
        pairs = pairs + (sums < 2**bits)
    mantissa = sums << (pairs * 2)
    octave = mantissa >> 23
    guess = lookup_bytes(octave, high, low)
    error = rescaled(mantissa * (guess * guess), 1, 30)
    root = rescaled(guess * (3 * 2**29 - error), 1, 17)
    product = rescaled(parts * root, 1, 13)
    quotient = (((product * 2) >> (15 - pairs)) + 1) >> 1
    return requantized(_halved(quotient * gain, gain_shift) + offset, *out)


def _root_table() -> list[Tensor]:
    """Return the bytes of reciprocal roots with 15 bits of ``(i + 0.5) / 64``, for i in 64..255; `normalize`."""
    roots = ((torch.arange(256).double() + 0.5) / 64).clamp(min=1).rsqrt().mul(2**15).round().long()
    return bytes_of(roots.clamp(max=2**15 - 1))


def _halved(values: Tensor, shift: int) -> Tensor:
    """Return ``values`` halved ``shift`` times, rounded to the nearest, halves up."""
    return rescaled(values, 1, shift) if shift else values


@lowers(integer.normalize.default, into="tosa")
def tosa_normalize(
    emit: TosaEmitter,
    x: ir.Value,
    high: ir.Value,
    low: ir.Value,
    gain: ir.Value,
    offset: ir.Value,
    axes: Sequence[int],
    centers: bool,
    zero_point: int,
    fraction: int,
    mean_multiplier: int,
    mean_shift: int,
    halvings: int,
    eps: int,
    gain_shift: int,
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit the arithmetic of the operator in i32, with ``tosa.clz`` for the leading zeros."""
    parts = emit_rescale(emit, x, "i32", [2**30], [30 - fraction], zero_point, 0)
    if centers:
        wide = emit_rescale(emit, x, "i32", [2**30], [30], zero_point, 0)
        mean = emit_rescale(emit, emit.sum(wide, axes, keepdim=True), "i32", [mean_multiplier], [mean_shift], 0, 0)
        parts = emit.sub(parts, mean)
    squares = emit_rescale(emit, emit.mul(parts, parts), "i32", [2**30], [30 + halvings], 0, 0)
    sums = emit.maximum(emit.add(emit.sum(squares, axes, keepdim=True), eps), 1)
    zeros = emit.value("tosa.clz", sums.type, sums)
    pairs = emit_right_shift(emit, emit.sub(zeros, 1), emit.constant(1, "i32"))
    mantissa = emit.value("tosa.logical_left_shift", sums.type, sums, emit.add(pairs, pairs))
    guess = emit_byte_lookup(emit, emit_upper_byte(emit, mantissa), high, low)
    error = emit_product(emit, mantissa, emit.mul(guess, guess), 30)
    root = emit_product(emit, guess, emit.sub(emit.constant(3 * 2**29, "i32"), error), 17)
    wide = emit_product(emit, parts, root, 13)
    quotient = emit_right_shift(emit, wide, emit.sub(emit.constant(15, "i32"), pairs), rounding=True)
    result = emit.add(emit_product(emit, quotient, gain, gain_shift), offset)
    return emit_requantized(emit, result, [multiplier], [shift], *out)


def _factors_are_constants(node: fx.Node, constants: Collection[fx.Node]) -> bool:
    return all(factor in constants for factor in node.all_input_nodes[1:])


NORMS = {
    operator: Rule(fold, accepts=_factors_are_constants, quantizes_constants=False)
    for operator, fold in (
        (aten.layer_norm.default, _fold_layer_norm),
        (aten.rms_norm.default, _fold_rms_norm),
        (aten.group_norm.default, _fold_group_norm),
    )
}
"""By operator. Their factors are constants in floating point."""
FAMILY = Family(rules=NORMS, operators=(normalize,), lowerings=(tosa_normalize,))
