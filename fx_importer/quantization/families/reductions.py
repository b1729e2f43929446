"""Sums and means along axes."""

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
from fx_importer.quantization.integer_operators import PER_TENSOR, centered, defines, integer, requantized
from fx_importer.quantization.rule import Family, Rule, Scope, arguments, axes_before, shape_of
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of
from fx_importer.quantization.tosa_emission import emit_requantized, emit_rescale


def _fold_sum(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    passed = arguments(node)
    if passed["dtype"] not in (None, torch.float32):
        raise NoIntegerForm(f"it computes in {passed['dtype']}")
    mean = node.target is aten.mean.dim
    return fold_reduction(scope, node, passed["dim"], passed["keepdim"], params, mean=mean)


def _fold_sum_of_all(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    if node.kwargs.get("dtype") not in (None, torch.float32):
        raise NoIntegerForm(f"it computes in {node.kwargs['dtype']}")
    return fold_reduction(scope, node, [], False, params, mean=node.target is aten.mean.default)


def fold_reduction(scope: Scope, node: fx.Node, axes: Any, keepdim: bool, params: Params, *, mean: bool) -> fx.Node:
    rank = len(axes_before(node.args[0], 0))
    axes = sorted({axis % rank for axis in ([axes] if isinstance(axes, int) else axes or range(rank))})
    sizes = shape_of(node.args[0], set(range(rank)) - set(axes))
    count = math.prod(sizes[axis] for axis in axes)
    x, of_x = scope.quantized(node.args[0])
    ratio = of_x.scale / params.scale / (count if mean else 1)
    scale = multiplier_and_shift(ratio, float(count * of_x.reach))
    return scope.call(node, integer.sum.default, x, axes, keepdim, of_x.zero_point, *scale, *out_of(params))


@defines(f"Tensor x, int[] axes, bool keepdim, int zero_point, {PER_TENSOR}")
def sum(x: Tensor, axes: list[int], keepdim: bool, zero_point: int, *out: int) -> Tensor:
    """Return the sums of ``x`` over ``axes``; a mean, if the scale divides by their sizes."""
    return requantized(centered(x, zero_point).sum(axes, keepdim), *out)


@lowers(integer.sum.default, into="tosa")
def tosa_reduce_sum(
    emit: TosaEmitter,
    x: ir.Value,
    axes: Sequence[int],
    keepdim: bool,
    zero_point: int,
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit sums in i32, and a rescale."""
    wide = emit_rescale(emit, x, "i32", [2**30], [30], zero_point, 0)
    return emit_requantized(emit, emit.sum(wide, axes, keepdim), [multiplier], [shift], *out)


FAMILY = Family(
    rules={
        aten.mean.dim: Rule(_fold_sum),
        aten.sum.dim_IntList: Rule(_fold_sum),
        aten.mean.default: Rule(_fold_sum_of_all),
        aten.sum.default: Rule(_fold_sum_of_all),
    },
    operators=(sum,),
    lowerings=(tosa_reduce_sum,),
)
