"""Rules of operators that are expressed by others: softmax by tables, convolutions of one axis."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.operators import bytes_of, integer, reciprocal_table
from fx_importer.quantization.rules import Rule, arguments, convolution
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of
from fx_importer.quantization.scope import Scope
from fx_importer.quantization.windows import shape_of

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


LAYERS: dict[Any, Rule] = {
    aten.softmax.int: _softmax,
    aten._softmax.default: _softmax,
    aten.conv1d.default: _convolution_of_one_axis,
    aten.conv1d.padding: _convolution_of_one_axis,
}
"""By operator."""
