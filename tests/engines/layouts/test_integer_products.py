"""Convolutions of int8 as products of int8 on IREE: the very numbers of int32 sums."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fx_importer.engines import IreeBackend
from fx_importer.engines.iree.iree_compiler import prepare
from fx_importer.engines.iree.iree_targets import iree_target
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.module_contents import copy_module

CONVOLUTION = """
func.func @main(%x: tensor<2x{c}x9x7xi8>, %begin: tensor<2x5x{h}x{w}xi32>) -> tensor<2x5x{h}x{w}xi32> {{
  %w = arith.constant dense<{weight}> : tensor<5x{c}x{k}x{k}xi8>
  %r = linalg.conv_2d_nchw_fchw
      {{strides = dense<[{s}, 1]> : tensor<2xi64>, dilations = dense<[1, {d}]> : tensor<2xi64>}}
      ins(%x, %w : tensor<2x{c}x9x7xi8>, tensor<5x{c}x{k}x{k}xi8>) outs(%begin : tensor<2x5x{h}x{w}xi32>)
      -> tensor<2x5x{h}x{w}xi32>
  return %r : tensor<2x5x{h}x{w}xi32>
}}
"""


@pytest.mark.slow_rows("^40-", "^16-")
@pytest.mark.parametrize(
    "channels, kernel, stride, dilation, products",
    [(16, 3, 2, 2, 1), (40, 3, 1, 1, 1), (3, 1, 2, 1, 1), (3, 3, 1, 1, 0)],
)
def test_convolutions(channels: int, kernel: int, stride: int, dilation: int, products: int) -> None:
    pytest.importorskip("iree.compiler")
    torch.manual_seed(0)
    weight = torch.randint(-128, 128, (5, channels, kernel, kernel), dtype=torch.int8)
    x = torch.randint(-128, 128, (2, channels, 9, 7), dtype=torch.int8)
    x[0], weight[0] = -128, -128  # the largest sums
    sums = F.conv2d(x.double(), weight.double(), stride=(stride, 1), dilation=(1, dilation))
    begin = torch.randint(-(2**30), 2**30, sums.shape, dtype=torch.int32)
    sizes = {"c": channels, "k": kernel, "s": stride, "d": dilation, "h": sums.shape[2], "w": sums.shape[3]}
    load_dialects(context := new_context())
    module = ir.Module.parse(CONVOLUTION.format(**sizes, weight=weight.tolist()), context)
    changed = copy_module(module.operation)
    prepare(changed, "none", iree_target("cpu"))
    assert str(changed).count("linalg.matmul") == products
    (found,) = IreeBackend().load(module)(x, begin)
    assert torch.equal(found, (sums + begin).to(torch.int32))
