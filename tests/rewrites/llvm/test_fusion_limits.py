"""Elementwise results that are not computed again for each read."""

import pytest

from fx_importer.mlir.bindings import ir, new_context
from fx_importer.mlir.walk import operations
from fx_importer.pipelines.llvm import FUSE
from fx_importer.pipelines.runner import run_stage

MODULE = """
#row = affine_map<(n, k) -> (k)>
#all = affine_map<(n, k) -> (n, k)>
#one = affine_map<(k) -> (k)>
func.func @main(%x: tensor<8xf32>, %w: tensor<ROWSx8xi8>) -> tensor<ROWSx8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %a = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%v: f32, %o: f32):
    %f = FUNCTION %v : f32
    linalg.yield %f : f32
  } -> tensor<8xf32>
  %d = tensor.empty() : tensor<ROWSx8xf32>
  %b = linalg.generic {indexing_maps = [#row, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%a, %w : tensor<8xf32>, tensor<ROWSx8xi8>) outs(%d : tensor<ROWSx8xf32>) {
  ^bb0(%v: f32, %i: i8, %o: f32):
    %f = arith.sitofp %i : i8 to f32
    %g = arith.mulf %v, %f : f32
    linalg.yield %g : f32
  } -> tensor<ROWSx8xf32>
  return %b : tensor<ROWSx8xf32>
}
"""


@pytest.mark.parametrize(
    "rows, function, loops", [(64, "math.exp", 2), (4, "math.exp", 1), (64, "arith.negf", 1)], ids=str
)
def test_expensive_results_that_are_read_often_stay_apart(rows, function, loops):
    module = ir.Module.parse(MODULE.replace("ROWS", str(rows)).replace("FUNCTION", function), new_context())
    run_stage(FUSE, module)
    assert module.operation.verify()
    assert len(operations(module.operation, ("linalg.generic",))) == loops
