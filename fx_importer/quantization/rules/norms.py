"""Rules of layer, group and RMS norms."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.operators.int8 import integer
from fx_importer.quantization.operators.layers import ROOT_BITS, root_table
from fx_importer.quantization.rules.scope import Rule, Scope, arguments
from fx_importer.quantization.rules.windows import shape_of
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of

_GAIN_BITS = 20
"""Bits of the largest factor of an element."""
_SUM_BITS = 30
"""Bits of results before the last rescale."""


def _layer_norm(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    given = arguments(node)
    axes = len(given["normalized_shape"])
    shape = shape_of(node)
    x, of_x = scope.quantized(given["input"])
    gain, offset = (_known(scope, given[name]) for name in ("weight", "bias"))
    last = list(range(len(shape) - axes, len(shape)))
    return _normalized(scope, node, x, of_x, last, True, gain, offset, given["eps"], params)


def _rms_norm(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    given = arguments(node)
    axes, shape = len(given["normalized_shape"]), shape_of(node)
    x, of_x = scope.quantized(given["input"])
    eps = torch.finfo(torch.float32).eps if given["eps"] is None else given["eps"]
    last = list(range(len(shape) - axes, len(shape)))
    return _normalized(scope, node, x, of_x, last, False, _known(scope, given["weight"]), None, eps, params)


def _group_norm(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    given = arguments(node)
    batch, channels, *sizes = shape = shape_of(node)
    groups = given["num_groups"]
    inner = [groups, channels // groups, math.prod(sizes)]
    x, of_x = scope.quantized(given["input"])
    factors = [_known(scope, given[name]) for name in ("weight", "bias")]
    gain, offset = (None if each is None else each.reshape(*inner[:2], 1) for each in factors)
    x = scope.call(node, aten.reshape.default, x, [batch, *inner])
    made = _normalized(scope, node, x, of_x, [2, 3], True, gain, offset, given["eps"], params)
    return scope.call(node, aten.reshape.default, made, shape)


def _known(scope: Scope, factor: Any) -> Tensor | None:
    if factor is None:
        return None
    found = scope.constants.value(factor)
    if found is None:
        raise NoIntegerForm(f"its factor {factor.name} is no constant of known values")
    return found.double()


def _normalized(
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
    count = math.prod(shape_of(x)[axis] for axis in axes)
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
    rank = len(shape_of(x))
    whole = [(factor * 2.0**shift).round(), (offset * 2.0**bits).round()]
    constants = [scope.constants.add(_of_rank(each.to(torch.int32), rank)) for each in whole]
    tables = [scope.constants.add(each) for each in root_table()]
    arguments = (axes, centers, of_x.zero_point, fraction, *mean, halvings, least, shift)
    return scope.call(node, integer.normalize.default, x, *tables, *constants, *arguments, *scale, *out_of(params))


def _of_rank(x: Tensor, rank: int) -> Tensor:
    return x.reshape([1] * (rank - x.dim()) + list(x.shape))


NORMS: dict[Any, Rule] = {
    aten.layer_norm.default: _layer_norm,
    aten.rms_norm.default: _rms_norm,
    aten.group_norm.default: _group_norm,
}
"""By operator. Their factors are constants in floating point."""
