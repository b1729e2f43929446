"""Linear layers and ``addmm``: matmuls with a constant weight, of int8 and int16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.lowerings import lowers
from fx_importer.lowerings.linalg import LinalgEmitter
from fx_importer.lowerings.stablehlo import StablehloEmitter
from fx_importer.lowerings.tosa import TosaEmitter
from fx_importer.mlir.bindings import ir
from fx_importer.quantization.constant_weights import constant_weight, weight_and_scales
from fx_importer.quantization.integer_operators import PER_CHANNEL, defines, integer, requantized_by_channel
from fx_importer.quantization.qdq import QuantizedWeight
from fx_importer.quantization.rule import Family, FloatSums, Rule, Scope, arguments, axes_before, never, shape_of
from fx_importer.quantization.scales import SUMS, NoIntegerForm, Params, out_of
from fx_importer.quantization.sums_emission import emit_integer_dot, emit_integer_matmul
from fx_importer.quantization.tosa_emission import emit_convolution, emit_i48_bias, emit_requantized


def _fold_linear(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    passed = arguments(node)
    return _fold_product(scope, node, passed["input"], constant_weight(scope, passed["weight"]), passed["bias"], params)


def _fold_addmm(scope: Scope, node: fx.Node, params: Params) -> fx.Node:
    passed = arguments(node)
    if (passed["beta"], passed["alpha"]) != (1, 1):
        raise NoIntegerForm("it has factors beta and alpha")
    return _fold_product(scope, node, passed["mat1"], _addmm_weight(scope, passed), passed["self"], params)


def _addmm_weight(scope: Scope, passed: dict[str, Any]) -> QuantizedWeight:
    """Return the weight of an ``addmm`` in the layout of ``linear``. Raises `NoIntegerForm`."""
    return _transposed(scope, passed["mat2"])


def _fold_product(scope: Scope, node: fx.Node, x: Any, weight: QuantizedWeight, bias: Any, params: Params) -> fx.Node:
    shape_of(node, axes_before(node, 1))
    source, of_x = scope.quantized(x)
    integers, *biases, scales = weight_and_scales(scope, weight, bias, of_x, params)
    if of_x.bits == 16:
        return scope.call(node, integer.wide_linear.default, source, integers, *biases, *scales, *out_of(params))
    return scope.call(
        node, integer.linear.default, source, integers, *biases, of_x.zero_point, *scales, *out_of(params)
    )


def _transposed(scope: Scope, node: fx.Node) -> QuantizedWeight:
    """Return the weight of a matrix ``[K, N]`` as ``[N, K]``."""
    if _swaps_axes(node):
        return constant_weight(scope, node.all_input_nodes[0])
    weight = constant_weight(scope, node)
    axis = None if weight.axis is None else 1 - weight.axis
    turned = weight.values.t().contiguous()
    return QuantizedWeight(turned, scope.constants.add(turned), weight.scales, weight.zero_points, axis)


def _swaps_axes(node: fx.Node) -> bool:
    """Return whether ``node`` transposes a matrix."""
    if node.target in (aten.t.default, aten.numpy_T.default):
        return True
    if node.target is aten.permute.default:
        return [axis % 2 for axis in node.args[1]] == [1, 0]  # type: ignore[union-attr, operator]
    return node.target is aten.transpose.int and {axis % 2 for axis in node.args[1:3]} == {0, 1}  # type: ignore[operator]


def _sums(scope: Scope, node: fx.Node) -> FloatSums:
    passed = arguments(node)
    adds = node.target is aten.addmm.default
    _, of_x = scope.quantized(passed["mat1" if adds else "input"])
    weight = _addmm_weight(scope, passed) if adds else constant_weight(scope, passed["weight"])
    return FloatSums(of_x, SUMS, of_x.scale * weight.scales, passed["self" if adds else "bias"])


@defines(f"Tensor x, Tensor weight, Tensor bias, Tensor offset, int zero_point, {PER_CHANNEL}")
def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    offset: Tensor,
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> Tensor:
    """Return ``x[..., K]`` times ``weight[N, K]`` transposed, with an int32 bias."""
    sums = integer.linear_sums(x.reshape(-1, x.shape[-1]), weight) + offset
    return requantized_by_channel(sums, (-1,), multipliers, shifts, *out).reshape([*x.shape[:-1], weight.shape[0]])


@defines("Tensor x, Tensor weight")
def linear_sums(x: Tensor, weight: Tensor) -> Tensor:
    """Return ``x[M, K]`` times ``weight[N, K]`` transposed, of int8, as int32, or of int16, as int64."""
    sums = F.linear(x.double(), weight.double()).long()
    return sums if x.dtype is torch.int16 else sums.int()


@defines(f"Tensor x, Tensor weight, int[] bias, {PER_CHANNEL}")
def wide_linear(
    x: Tensor, weight: Tensor, bias: Sequence[int], multipliers: Sequence[int], shifts: Sequence[int], *out: int
) -> Tensor:
    """Return ``x[..., K]`` times ``weight[N, K]`` transposed, of int8."""
    offset = torch.tensor(bias, dtype=torch.int64, device=x.device)
    sums = integer.linear_sums(x.reshape(-1, x.shape[-1]), weight) + offset
    return requantized_by_channel(sums, (-1,), multipliers, shifts, *out).reshape([*x.shape[:-1], weight.shape[0]])


@lowers(integer.linear.default, into="tosa")
def tosa_linear(
    emit: TosaEmitter,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value,
    _offset: ir.Value,
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> ir.Value:
    """Emit a linear layer of int8."""
    return _emit_linear(emit, x, weight, bias, zero_point, multipliers, shifts, *out)


@lowers(integer.wide_linear.default, into="tosa")
def tosa_wide_linear(
    emit: TosaEmitter,
    x: ir.Value,
    weight: ir.Value,
    bias: Sequence[int],
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> ir.Value:
    """Emit a linear layer of int16."""
    return _emit_linear(emit, x, weight, bias, 0, multipliers, shifts, *out)


def _emit_linear(
    emit: TosaEmitter,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | Sequence[int],
    zero_point: int,
    multipliers: Sequence[int],
    shifts: Sequence[int],
    *out: int,
) -> ir.Value:
    """Emit a convolution of one by one: TOSA's matmul has no bias."""
    (channels, depth), shape = emit.shape(weight), emit.shape(x)
    rows = emit.reshape(x, [-1, 1, 1, depth or 0])
    kernel = emit.reshape(weight, [channels or 0, depth or 0, 1, 1])
    bias = bias if isinstance(bias, ir.Value) else emit_i48_bias(emit, bias)
    sums = emit_convolution(emit, rows, kernel, bias, (1, 1), (0, 0, 0, 0), (1, 1), 1, zero_point)
    result = emit_requantized(emit, sums, multipliers, shifts, *out)
    return emit.reshape(result, [*(-1 if size is None else size for size in shape[:-1]), channels or 0])


@lowers(integer.linear_sums.default, into="stablehlo")
def stablehlo_linear_sums(emit: StablehloEmitter, x: ir.Value, weight: ir.Value) -> ir.Value:
    """Emit ``x[M, K]`` times ``weight[N, K]`` transposed."""
    return emit_integer_dot(emit, x, weight, 0, 1)


@lowers(integer.linear_sums.default, into="linalg-on-tensors")
def linalg_linear_sums(emit: LinalgEmitter, x: ir.Value, weight: ir.Value) -> ir.Value:
    """Emit ``x[M, K]`` times ``weight[N, K]`` transposed."""
    maps = emit.linalg.affine_maps([emit.linalg.select_axes(3, axes) for axes in ((0, 2), (1, 2), (0, 1))])
    return emit_integer_matmul(emit, "matmul", x, weight, emit.results[0], {"indexing_maps": maps})


FAMILY = Family(
    rules={
        aten.linear.default: Rule(_fold_linear, sums=_sums, weight_axis=0),
        aten.addmm.default: Rule(_fold_addmm, sums=_sums, accepts=never),
    },
    operators=(linear, wide_linear, linear_sums),
    lowerings=(tosa_linear, tosa_wide_linear, stablehlo_linear_sums, linalg_linear_sums),
)
