"""Products of int8 in float32: the very numbers of integers, also at the bounds of what is exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fx_importer.engines import JitBackend, XlaBackend
from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.module_contents import copy_module
from fx_importer.rewrites.linalg.exact_floats import int8_matmuls_to_f32
from fx_importer.rewrites.stablehlo import exact_floats as exact_floats_stablehlo

PRODUCT = """
func.func @main(%x: tensor<2x{k}xi8>, %y: tensor<{k}x3xi8>, %begin: tensor<2x3xi32>) -> tensor<2x3xi32> {{
  {weight}
  %r = linalg.matmul ins(%x, %w : tensor<2x{k}xi8>, tensor<{k}x3xi8>) outs(%begin : tensor<2x3xi32>) -> tensor<2x3xi32>
  return %r : tensor<2x3xi32>
}}
"""
CONVOLUTION = """
func.func @main(%x: tensor<1x4x5x6xi8>) -> tensor<1x4x5x6xi32> {
  %c = arith.constant -7 : i8
  %zero = arith.constant 0 : i32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%a: index, %b: index, %d: index, %e: index):
    tensor.yield %c : i8
  } : tensor<1x4x5x6xi8> to tensor<1x4x7x8xi8>
  %w = arith.constant dense<-128> : tensor<4x3x3xi8>
  %e = tensor.empty() : tensor<1x4x5x6xi32>
  %f = linalg.fill ins(%zero : i32) outs(%e : tensor<1x4x5x6xi32>) -> tensor<1x4x5x6xi32>
  %r = linalg.depthwise_conv_2d_nchw_chw ins(%p, %w : tensor<1x4x7x8xi8>, tensor<4x3x3xi8>)
      outs(%f : tensor<1x4x5x6xi32>) -> tensor<1x4x5x6xi32>
  return %r : tensor<1x4x5x6xi32>
}
"""


def _module(text: str) -> ir.Module:
    load_dialects(context := new_context())
    return ir.Module.parse(text, context)


def _integers(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8))


@pytest.mark.parametrize(
    "terms, weight, products",
    [
        (1024, None, 1),  # 2^24 at most
        (1025, None, 0),
        (1024, -128, 1),
        (3000, 10, 1),
        (3000, 127, 2),  # by its high and its low bits
        (20000, -128, 0),
    ],
)
def test_products_are_exact_or_stay(terms, weight, products):
    constant = "%w = tensor.cast %y : tensor<{k}x3xi8> to tensor<{k}x3xi8>"
    if weight is not None:
        constant = f"%w = arith.constant dense<{weight}> : tensor<{{k}}x3xi8>"
    module = _module(PRODUCT.format(k=terms, weight=constant.format(k=terms)))
    changed = copy_module(module.operation)
    int8_matmuls_to_f32(changed.operation)
    assert str(changed).count(f"tensor<2x{terms}xf32>, tensor<{terms}x3xf32>") == products
    begin = torch.tensor([[2**30 + 1, -5, 0], [7, 2**24 + 1, -(2**24) - 1]], dtype=torch.int32)
    for x in (torch.full((2, terms), -128, dtype=torch.int8), _integers(2, terms)):
        y = torch.full((terms, 3), -128 if weight is None else weight, dtype=torch.int8)
        (found,) = JitBackend().load(module)(x, y, begin)
        assert torch.equal(found, (x.long() @ y.long() + begin).to(torch.int32))


def test_unsigned_products_stay():
    text = PRODUCT.format(k=4, weight="%w = tensor.cast %y : tensor<4x3xi8> to tensor<4x3xi8>")
    text = text.replace("linalg.matmul ins", "linalg.matmul {cast = #linalg.type_fn<cast_unsigned>} ins")
    module = _module(text)
    int8_matmuls_to_f32(module.operation)
    assert "xf32>" not in str(module)


def test_padded_convolutions():
    x = _integers(1, 4, 5, 6)
    weight = torch.full((4, 1, 3, 3), -128.0, dtype=torch.float64)
    expected = F.conv2d(F.pad(x.double(), (1, 1, 1, 1), value=-7.0), weight, groups=4)
    (found,) = JitBackend().load(_module(CONVOLUTION))(x)
    assert torch.equal(found, expected.to(torch.int32))


DOT = """
func.func @main(%x: tensor<2x{k}xi8>, %y: tensor<{k}x3xi8>) -> tensor<2x3xi32> {{
  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
      : (tensor<2x{k}xi8>, tensor<{k}x3xi8>) -> tensor<2x3xi32>
  return %r : tensor<2x3xi32>
}}
"""


@pytest.mark.slow_rows("^102[45]-")
@pytest.mark.parametrize("terms, products", [(1024, 1), (1025, 2), (8738, 2), (8739, 0)])
def test_products_of_stablehlo_are_exact_or_stay(terms, products):
    pytest.importorskip("jax")
    module = _module(DOT.format(k=terms))
    changed = copy_module(module.operation)
    exact_floats_stablehlo.stablehlo_int8_matmuls_to_f32(changed.operation)
    assert str(changed).count("xf32>) -> tensor<2x3xf32>") == products
    y = _integers(terms, 3)
    for x in (torch.full((2, terms), -128, dtype=torch.int8), _integers(2, terms)):
        for weight in (torch.full_like(y, -128), torch.full_like(y, 127), y):
            (found,) = XlaBackend().load(module)(x, weight)
            assert torch.equal(found, (x.long() @ weight.long()).to(torch.int32))
