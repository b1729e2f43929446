"""Fills of tensors that CSE made one."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir, new_context
from fx_importer.rewrites.native.separate_fills import separate_fills

PROGRAM = """
#scalar = affine_map<(d0) -> ()>
#id = affine_map<(d0) -> (d0)>
func.func @main(%a: tensor<1xf32>, %b: tensor<1xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel"]} ins(%zero : f32)
      outs(%e : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<4xf32>
  %one = tensor.insert_slice %a into %f[0] [1] [1] : tensor<1xf32> into tensor<4xf32>
  %two = tensor.insert_slice %b into %f[1] [1] [1] : tensor<1xf32> into tensor<4xf32>
  return %one, %two : tensor<4xf32>, tensor<4xf32>
}
"""


def test_each_user_fills_right_before() -> None:
    module = ir.Module.parse(PROGRAM, new_context())
    separate_fills(module.operation)
    names = [op.operation.name for op in module.body.operations[0].regions[0].blocks[0]]
    assert names[2:] == [*["linalg.generic", "tensor.insert_slice"] * 2, "func.return"]
