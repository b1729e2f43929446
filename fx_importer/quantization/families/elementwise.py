"""Elementwise functions of one tensor: clamps, positive factors, and tables of all values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.node import map_arg

from fx_importer.fx_graph.emission import value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import with_element
from fx_importer.quantization.integer_operators import PER_TENSOR, defines, integer, requantized
from fx_importer.quantization.qdq import kind_of
from fx_importer.quantization.rule import Family, Scope
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of
from fx_importer.quantization.tosa_emission import emit_requantized
from fx_importer.quantization.wide_tables import STEPS, interpolate, wide_table_of

_CLAMPS = (aten.clamp.default, aten.hardtanh.default, aten.clamp_min.default, aten.clamp_max.default)

_WITHOUT_TAG = frozenset(
    (
        aten.hardswish.default,
        aten.hardsigmoid.default,
        aten.hardtanh.default,
        aten.relu6.default,
        aten.silu.default,
        aten.mish.default,
        aten.softplus.default,
        aten.celu.default,
        aten.selu.default,
        aten.log_sigmoid.default,
    )
)
"""Elementwise operators that some releases of torch do not tag as such."""


def clamp_bounds(node: fx.Node) -> tuple[float, float] | None:
    """Return the bounds of an operator that clamps to numbers; None for others."""
    if node.target is aten.relu.default:
        return 0.0, math.inf
    if node.target is aten.relu6.default:
        return 0.0, 6.0
    if node.target not in _CLAMPS or node.kwargs:
        return None
    bounds = list(node.args[1:])
    if node.target is aten.hardtanh.default:
        bounds += (-1.0, 1.0)[len(bounds) :]
    elif node.target is aten.clamp_max.default:
        bounds = [None, *bounds]
    low, high = [*bounds, None, None][:2]
    if not all(bound is None or isinstance(bound, int | float) for bound in (low, high)):
        return None
    return -math.inf if low is None else float(low), math.inf if high is None else float(high)


def positive_factor(node: fx.Node) -> float | None:
    """Return the positive number that an operator multiplies with; None for others."""
    if node.target not in (aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar) or node.kwargs:
        return None
    number = node.args[1]
    if not isinstance(number, int | float) or not (0 < number < math.inf):
        return None
    return float(number) if "mul" in str(node.target) else 1 / number


def is_elementwise(target: Any) -> bool:
    """Return whether an operator is a function of each element, without side effects."""
    if not isinstance(target, OpOverload) or target._schema.is_mutable:
        return False
    if torch.Tag.nondeterministic_seeded in target.tags:
        return False
    return torch.Tag.pointwise in target.tags or target in _WITHOUT_TAG


def fold_table(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    """Emit ``node``, elementwise operators on one quantized tensor, as a table of all its values.

    Raises:
        NoIntegerForm: for other operators, and other operands.
    """
    order: list[fx.Node] = []
    leaves: list[fx.Node] = []
    _collect(scope, node, order, leaves)
    sources = {scope.quantized(leaf) for leaf in leaves}
    if len(sources) != 1:
        raise NoIntegerForm(f"it is a function of {len(sources)} tensors, and tables are of one")
    ((x, of_x),) = sources
    for _ in range(value_of(node).dim() - value_of(x).dim()):  # constants of one element may add axes
        x = scope.call(node, aten.unsqueeze.default, x, 0)

    def function(x: Tensor) -> Tensor:
        values: dict[fx.Node, Tensor] = dict.fromkeys(leaves, x)
        for member in order:
            if (known := scope.constants.value(member)) is not None:
                values[member] = known.reshape(())
            elif member not in values:
                args, kwargs = map_arg((member.args, member.kwargs), values.__getitem__)
                values[member] = member.target(*args, **kwargs)  # type: ignore[operator]
        return values[node].float()

    if 16 in (of_x.bits, params.bits):
        return _fold_wide_table(scope, node, x, of_x, params, function)
    steps = torch.arange(-128, 128).clamp(of_x.low, of_x.high)
    result = function((steps - of_x.zero_point).float() * of_x.scale)
    if result.isnan().any():  # an infinity is the bound of the range
        raise NoIntegerForm("it is not finite everywhere in the range of its operand")
    entries = ((result / params.scale).round() + params.zero_point).clamp(params.low, params.high)
    return scope.call(node, integer.table.default, x, scope.constants.add(entries.to(torch.int8)))


def _fold_wide_table(
    scope: Scope, node: fx.Node, x: fx.Node, of_x: Params, params: Params, function: Callable[[Tensor], Tensor]
) -> fx.Node:
    """Emit ``function`` of ``x`` as a table of int16 with the parameters. Raises `NoIntegerForm`."""
    levels, scale = torch.arange(of_x.low, of_x.high + 1) - of_x.zero_point, of_x.scale
    operand = 1  # the factor of x before the lookup
    if of_x.bits == 8:
        levels, scale, operand = levels * 2**7, scale / 2**7, 2**7
    table = wide_table_of(function, levels, scale, params)
    if operand * table.gain > 1:
        by = multiplier_and_shift(float(operand * table.gain), of_x.reach)
        x = scope.call(node, integer.rescale.default, x, of_x.zero_point, *by, 0, -(2**15), 2**15 - 1, 16)
    entries = scope.constants.add(table.entries)
    made = scope.call(node, integer.wide_table.default, x, entries, table.multiplier, table.shift, *out_of(params))
    made.meta[STEPS] = table.steps
    return made


def _collect(scope: Scope, node: fx.Node, order: list[fx.Node], leaves: list[fx.Node]) -> None:
    """Append the operators that compute ``node`` in order, and the tensors at which they start."""
    if node in order or node in leaves:
        return
    constant = scope.constants.value(node)
    if constant is not None and constant.numel() == 1:
        order.append(node)
    elif kind_of(node) is not None or scope.moves(node) or node.op == "placeholder":
        leaves.append(node)
    else:
        if not is_elementwise(node.target):
            raise NoIntegerForm(f"{node.target} has no integer form")
        for operand in node.all_input_nodes:
            _collect(scope, operand, order, leaves)
        order.append(node)


@defines("Tensor x, Tensor entries", torch.Tag.pointwise)
def table(x: Tensor, entries: Tensor) -> Tensor:
    """Return ``entries[x + 128]``, of 256 entries."""
    return aten.index(entries, [x.to(torch.int64) + 128])


@defines(f"Tensor x, Tensor entries, {PER_TENSOR}", torch.Tag.pointwise)
def wide_table(x: Tensor, entries: Tensor, *out: int) -> Tensor:
    """Return linear interpolations of ``entries`` at each 128th of int16, of 513, rescaled."""
    return requantized(interpolate(x, entries), *out)


@lowers(integer.table.default, into="tosa")
def tosa_table(emit: TosaEmitter, x: ir.Value, entries: ir.Value) -> ir.Value:
    """Emit a table."""
    return emit.value("tosa.table", x.type, x, entries)


@lowers(integer.wide_table.default, into="tosa")
def tosa_wide_table(
    emit: TosaEmitter, x: ir.Value, entries: ir.Value, multiplier: int, shift: int, *out: int
) -> ir.Value:
    """Emit a table of 513 entries, and a rescale."""
    return emit_requantized(emit, emit_interpolated(emit, x, entries), [multiplier], [shift], *out)


def emit_interpolated(emit: TosaEmitter, x: ir.Value, entries: ir.Value) -> ir.Value:
    return emit.value("tosa.table", with_element(x.type, "i32"), x, entries)


FAMILY = Family(
    operators=(table, wide_table),
    lowerings=(tosa_table, tosa_wide_table),
    result_scales={
        aten.sigmoid.default: (1 / 256, -128),
        aten.hardsigmoid.default: (1 / 256, -128),
        aten.tanh.default: (1 / 128, 0),
    },
)
