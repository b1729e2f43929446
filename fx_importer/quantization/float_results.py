"""Products of int8 whose results stay in floating point: int32 sums, times their scales."""

from __future__ import annotations

import torch
from torch import fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.families import RULES
from fx_importer.quantization.rule import Scope
from fx_importer.quantization.scales import NoIntegerForm


def has_sums(node: fx.Node) -> bool:
    """Return whether `scaled_sums` takes ``node``."""
    return node.target in RULES and RULES[node.target].sums is not None


def scaled_sums(scope: Scope, node: fx.Node) -> fx.Node:
    """Emit a product of quantized operands in float32: its int32 sums times their scales, plus the bias.

    Some quantizers, such as torchao's for x86, leave the results of matmuls and convolutions in floating point.

    Raises:
        NoIntegerForm: if an operand is not quantized to int8, and for results of another dtype.
    """
    if node.meta["val"].dtype is not torch.float32:
        raise NoIntegerForm(f"its result is {node.meta['val'].dtype}")
    rule = RULES[node.target]
    assert rule.sums is not None
    sums = rule.sums(scope, node)
    if sums.operand.bits != 8:
        raise NoIntegerForm(f"its result is not quantized, and sums of int{sums.operand.bits} have 48 bits")
    shape = [-1, *[1] * sums.trailing]
    result = scope.call(node, aten._to_copy.default, rule.fold(scope, node, sums.params), dtype=torch.float32)
    scales = scope.constants.add(sums.scales.reshape(shape).float())
    result = scope.call(node, aten.mul.Tensor, result, scales)
    if (bias := sums.bias) is None:
        return result
    if len(bias.meta["val"].shape) != 1:
        raise NoIntegerForm("its bias is not a vector")
    if sums.trailing:
        bias = scope.call(node, aten.reshape.default, bias, shape)
    return scope.call(node, aten.add.Tensor, result, bias)
