"""Products of int8 whose results are read in floating point: int32 sums, times their scales."""

from __future__ import annotations

import torch
from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.rules.products import PRODUCTS, addmm_weight, constant_weight
from fx_importer.quantization.rules.scope import Scope, arguments
from fx_importer.quantization.scales import SUMS, NoIntegerForm, sums_of_scale

_ACTIVATIONS = (aten.matmul.default, aten.mm.default, aten.bmm.default)
_CONVOLUTIONS = (aten.conv1d.default, aten.conv2d.default, aten.conv1d.padding, aten.conv2d.padding)
WITH_FLOAT_RESULTS = (*_ACTIVATIONS, *_CONVOLUTIONS, aten.linear.default, aten.addmm.default)
"""The operators that `scaled_sums` takes."""


def scaled_sums(scope: Scope, node: fx.Node) -> fx.Node:
    """Emit a product of quantized operands in float32: its int32 sums times their scales, plus the bias.

    So quantizers that leave the results of products in floating point (torchao's for x86) do not leave the products
    there.

    Raises:
        NoIntegerForm: if an operand is not quantized to int8, and for results of another dtype.
    """
    if node.meta["val"].dtype is not torch.float32:
        raise NoIntegerForm(f"its result is {node.meta['val'].dtype}")
    given = arguments(node)
    if node.target in _ACTIVATIONS:
        (_, of_a), (_, of_b) = (scope.quantized(each) for each in node.args[:2])
        scales, bias = torch.tensor([of_a.scale * of_b.scale], dtype=torch.float64), None
        of_x, sums = of_a, sums_of_scale(float(scales))
    else:
        adds = node.target is aten.addmm.default
        _, of_x = scope.quantized(given["mat1" if adds else "input"])
        weight = addmm_weight(scope, given) if adds else constant_weight(scope, given["weight"])
        scales, bias, sums = of_x.scale * weight.scales, given["self" if adds else "bias"], SUMS
    if of_x.bits != 8:
        raise NoIntegerForm(f"its result is not quantized, and sums of int{of_x.bits} have 48 bits")
    rule = PRODUCTS[node.target]
    made = scope.call(node, aten._to_copy.default, rule(scope, node, sums), dtype=torch.float32)
    made = scope.call(node, aten.mul.Tensor, made, scope.constants.add(_by_channel(scales, node).float()))
    if bias is None:
        return made
    if len(bias.meta["val"].shape) != 1:
        raise NoIntegerForm("its bias is no vector")
    if node.target in _CONVOLUTIONS:
        bias = scope.call(node, aten.reshape.default, bias, [-1] + [1] * (node.meta["val"].dim() - 2))
    return scope.call(node, aten.add.Tensor, made, bias)


def _by_channel(scales: Tensor, node: fx.Node) -> Tensor:
    """Return scales in a shape that broadcasts to the result of ``node``."""
    rank = node.meta["val"].dim()
    return scales.reshape([-1] + [1] * (rank - 2)) if node.target in _CONVOLUTIONS else scales
