"""Matmuls of two activations."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import lowers
from fx_importer.lowerings.linalg import LinalgEmitter
from fx_importer.lowerings.stablehlo import StablehloEmitter
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.integer_operators import PER_TENSOR, defines, integer, requantized
from fx_importer.quantization.rule import Family, FloatSums, Rule, Scope, axes_before, shape_of, two_activations
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift, out_of, sums_of_scale
from fx_importer.quantization.sums_emission import emit_integer_dot, emit_integer_matmul
from fx_importer.quantization.tosa_emission import accumulator_type, emit_requantized, emit_scalar, static_shape


def _fold_matmul(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    left, right = node.args[:2]
    shapes = shape_of(left, axes_before(left, 2)), shape_of(right, axes_before(right, 2))
    if min(map(len, shapes)) < 2 or shapes[0][:-2] != shapes[1][:-2]:
        raise NoIntegerForm(f"its operands of sizes {shapes[0]} and {shapes[1]} are no batches of equal size")
    (a, of_a), (b, of_b) = scope.quantized(left), scope.quantized(right)
    bound = float(shapes[0][-1] * of_a.reach * of_b.reach)
    if of_a.bits != of_b.bits:
        raise NoIntegerForm(f"its operands are int{of_a.bits} and int{of_b.bits}: quantize them alike")
    scale = multiplier_and_shift(of_a.scale * of_b.scale / params.scale, bound, of_a.bits == 16)
    zero_points = [of_a.zero_point, of_b.zero_point]
    return scope.call(node, integer.matmul.default, a, b, zero_points, *scale, *out_of(params))


def _sums(scope: Scope, node: fx.Node) -> FloatSums:
    (_, of_a), (_, of_b) = (scope.quantized(operand) for operand in node.args[:2])
    scale = of_a.scale * of_b.scale
    return FloatSums(of_a, sums_of_scale(scale), torch.tensor([scale], dtype=torch.float64), None)


def _batches_agree(node: fx.Node, constants: Collection[fx.Node]) -> bool:
    """Return whether a node multiplies batches of matrices of equal leading axes, both activations."""
    if not two_activations(node, constants):
        return False
    left, right = (list(operand.meta["val"].shape) for operand in node.args[:2])  # type: ignore[union-attr]
    return min(len(left), len(right)) >= 2 and left[:-2] == right[:-2]


@defines(f"Tensor a, Tensor b, int[] zero_points, {PER_TENSOR}")
def matmul(a: Tensor, b: Tensor, zero_points: Sequence[int], *out: int) -> Tensor:
    """Return the matmul of ``a[..., M, K]`` and ``b[..., K, N]``, with equal leading axes."""
    left, right = (x.reshape(-1, *x.shape[-2:]) for x in (a, b))
    of_a, of_b = zero_points
    sums = integer.matmul_sums(left, right)
    if of_a:
        sums = sums - of_a * right.to(torch.int32).sum(1, keepdim=True, dtype=torch.int32)
    if of_b:
        sums = sums - of_b * left.to(torch.int32).sum(2, keepdim=True, dtype=torch.int32)
    return requantized(sums + of_a * of_b * a.shape[-1], *out).reshape([*a.shape[:-1], b.shape[-1]])


@defines("Tensor a, Tensor b")
def matmul_sums(a: Tensor, b: Tensor) -> Tensor:
    """Return the matmul of ``a[B, M, K]`` and ``b[B, K, N]``, of int8, as int32."""
    sums = torch.matmul(a.double(), b.double()).long()
    return sums if a.dtype is torch.int16 else sums.int()


@lowers(integer.matmul.default, into="tosa")
def tosa_matmul(
    emit: TosaEmitter, a: ir.Value, b: ir.Value, zero_points: Sequence[int], multiplier: int, shift: int, *out: int
) -> ir.Value:
    """Emit a batched matmul."""
    left, right = (emit.reshape(x, [-1, *static_shape(emit, x, -2)]) for x in (a, b))
    zeros = [emit_scalar(emit, zero_point, emit.element(a)) for zero_point in zero_points]
    kind = emit.tensor([*emit.shape(left)[:2], emit.shape(right)[-1]], accumulator_type(emit, a))
    result = emit_requantized(emit, emit.value("tosa.matmul", kind, left, right, *zeros), [multiplier], [shift], *out)
    sizes = [*emit.shape(a)[:-1], emit.shape(b)[-1]]
    return emit.reshape(result, [-1 if size is None else size for size in sizes])


@lowers(integer.matmul_sums.default, into="stablehlo")
def stablehlo_matmul_sums(emit: StablehloEmitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Emit the matmul of ``a[B, M, K]`` and ``b[B, K, N]``."""
    return emit_integer_dot(emit, a, b, 1, 1)


@lowers(integer.matmul_sums.default, into="linalg-on-tensors")
def linalg_matmul_sums(emit: LinalgEmitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Emit the matmul of ``a[B, M, K]`` and ``b[B, K, N]``."""
    maps = emit.linalg.affine_maps([emit.linalg.select_axes(4, axes) for axes in ((0, 1, 3), (0, 3, 2), (0, 1, 2))])
    return emit_integer_matmul(emit, "batch_matmul", a, b, emit.results[0], {"indexing_maps": maps})


FAMILY = Family(
    rules=dict.fromkeys(
        (aten.matmul.default, aten.mm.default, aten.bmm.default),
        Rule(_fold_matmul, sums=_sums, accepts=_batches_agree),
    ),
    operators=(matmul, matmul_sums),
    lowerings=(tosa_matmul, stablehlo_matmul_sums, linalg_matmul_sums),
)
