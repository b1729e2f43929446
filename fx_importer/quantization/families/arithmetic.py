"""Sums, differences and products of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import lowers
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.integer_operators import PER_TENSOR, centered, defines, integer, requantized
from fx_importer.quantization.rule import Family, Rule, Scope, axes_before, shape_of, two_activations
from fx_importer.quantization.scales import ADDED_BITS, NoIntegerForm, Params, multiplier_and_shift, out_of, rescaled
from fx_importer.quantization.tosa_emission import emit_requantized, emit_rescale


def _fold_binary(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    kind = str(node.target).split(".")[1]
    left, right = node.args[:2]
    if node.kwargs.get("alpha", 1) != 1:
        raise NoIntegerForm("it has a factor alpha")
    (a, of_a), (b, of_b) = scope.quantized(left), scope.quantized(right)
    shape_of(node, axes_before(node, 0))
    if kind == "mul":
        scales, out = [1.0, 1.0], of_a.scale * of_b.scale / params.scale
        bound = float(of_a.reach * of_b.reach)
    else:
        common = 2 * max(of_a.scale, of_b.scale) / 2 ** ADDED_BITS[max(of_a.bits, of_b.bits)]
        scales, out = [of_a.scale / common, of_b.scale / common], common / params.scale
        bound = scales[0] * of_a.reach + scales[1] * of_b.reach + 2
    parts = [multiplier_and_shift(scale, operand.reach) for scale, operand in zip(scales, (of_a, of_b), strict=True)]
    multipliers, shifts = ([part[i] for part in parts] for i in (0, 1))
    zero_points = [of_a.zero_point, of_b.zero_point]
    scale = multiplier_and_shift(out, bound)
    return scope.call(
        node, integer.binary.default, kind, a, b, zero_points, multipliers, shifts, *scale, *out_of(params)
    )


@defines(
    f"str kind, Tensor a, Tensor b, int[] zero_points, int[] multipliers, int[] shifts, {PER_TENSOR}",
    torch.Tag.pointwise,
)
def binary(
    kind: str,
    a: Tensor,
    b: Tensor,
    zero_points: Sequence[int],
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return ``a`` and ``b``, each rescaled to 32 bits, combined by ``kind``: add, sub or mul."""
    parts = [
        rescaled(centered(*operand[:2]), *operand[2:])
        for operand in zip((a, b), zero_points, multipliers, shifts, strict=True)
    ]
    return requantized(getattr(torch, kind)(*parts), *out)


@lowers(integer.binary.default, into="tosa")
def tosa_binary(
    emit: TosaEmitter,
    kind: str,
    a: ir.Value,
    b: ir.Value,
    zero_points: Sequence[int],
    multipliers: Sequence[int],
    shifts: Sequence[int],
    multiplier: int,
    shift: int,
    *out: int,
) -> ir.Value:
    """Emit operands rescaled to i32, the operation, and a rescale."""
    wide = [
        emit_rescale(emit, x, "i32", [by], [bits], zero_point, 0)
        for x, zero_point, by, bits in zip((a, b), zero_points, multipliers, shifts, strict=True)
    ]
    combine = {"add": emit.add, "sub": emit.sub, "mul": emit.mul}[kind]
    return emit_requantized(emit, combine(*wide), [multiplier], [shift], *out)


_RULE = Rule(_fold_binary, accepts=two_activations)
FAMILY = Family(
    rules=dict.fromkeys((aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor), _RULE),
    operators=(binary,),
    lowerings=(tosa_binary,),
)
