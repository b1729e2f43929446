"""Rules of softmax, by tables of powers and of reciprocals."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.operators.int8 import bytes_of, integer, reciprocal_table
from fx_importer.quantization.rules.scope import Rule, Scope
from fx_importer.quantization.rules.windows import shape_of
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of

_POWER = 2**15 - 1
"""The power of zero, of 15 bits; a sum of 2¹⁵ of them stays below 2³⁰."""


def scores_of(softmax: fx.Node) -> tuple[fx.Node, fx.Node | None]:
    """Return the operand of a softmax, and the mask of those of its elements that count, if it has one.

    A mask is that of ``where(mask, x, -inf)``.
    """
    source = softmax.args[0]
    assert isinstance(source, fx.Node)
    if source.target is aten.where.ScalarOther and source.args[2] == -math.inf:
        return source.args[1], source.args[0]  # type: ignore[return-value]
    return source, None


def _softmax(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    sizes, axis = shape_of(node), node.args[1]
    assert isinstance(axis, int)
    if not sizes or sizes[axis] > 2**15:
        raise NoIntegerForm(f"the sum along its axis of sizes {sizes} can exceed 32 bits")
    scores, mask = scores_of(node)
    x, of_x = scope.quantized(scores)
    scale = multiplier_and_shift(2.0**-15 / params.scale, 2.0**15)
    divisor = [scope.constants.add(each) for each in reciprocal_table()]
    if of_x.bits == 16:
        return _wide_softmax(scope, node, x, of_x, divisor, mask, (*scale, *out_of(params)))
    powers = (torch.arange(-255, 1).double() * of_x.scale).exp().mul(_POWER).round().long()
    tables = [scope.constants.add(each) for each in bytes_of(powers)]
    arguments = (divisor, mask, axis % len(sizes))
    return scope.call(node, integer.softmax.default, x, *tables, *arguments, *scale, *out_of(params))


def _wide_softmax(
    scope: Scope,
    node: fx.Node,
    x: fx.Node,
    of_x: Params,
    divisor: list[fx.Node],
    mask: fx.Node | None,
    out: tuple[int, ...],
) -> fx.Node:
    """Emit a softmax of int16; powers below e⁻¹¹ vanish in 15 bits."""
    sizes, axis = shape_of(node), node.args[1]
    assert isinstance(axis, int)
    places = torch.arange(513).double() * 128 - 2**15
    step = 11.0 / 2**16
    powers = ((places - (2**15 - 1)) * step).clamp(max=0).exp().mul(_POWER).round()
    by = multiplier_and_shift(of_x.scale / step, 2.0**16)
    entries = scope.constants.add(powers.to(torch.int16))
    return scope.call(node, integer.wide_softmax.default, x, entries, divisor, *by, mask, axis % len(sizes), *out)


SOFTMAX: dict[Any, Rule] = {
    aten.softmax.int: _softmax,
    aten._softmax.default: _softmax,
}
"""By operator."""
