"""Results of ``linalg.generic`` that nothing reads are dropped with their computation; what others read is kept."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir, new_context
from fx_importer.rewrites import drop_unused_results

GENERIC = """
#in = affine_map<(d0, d1) -> (d0, d1)>
#out = affine_map<(d0, d1) -> (d0)>
func.func @main(%x: tensor<4x8xf32>, %a: tensor<4xf32>, %b: tensor<4xi64>) -> {type} {{
  %0:2 = linalg.generic {{indexing_maps = [#in, #out, #out], iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<4x8xf32>) outs(%a, %b : tensor<4xf32>, tensor<4xi64>) {{
  ^bb0(%in: f32, %value: f32, %position: i64):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i64
    %larger = arith.cmpf ugt, %in, %value : f32
    %most = arith.maximumf %in, %value : f32
    %where = arith.select %larger, %j, %position : i64
    linalg.yield %most, %where : f32, i64
  }} -> (tensor<4xf32>, tensor<4xi64>)
  return %0#{result} : {type}
}}
"""


def rewritten(result: int, type_: str) -> str:
    module = ir.Module.parse(GENERIC.format(result=result, type=type_), new_context())
    drop_unused_results(module.operation)
    module.operation.verify()
    return str(module)


def test_positions_that_nothing_reads_are_dropped():
    text = rewritten(0, "tensor<4xf32>")
    assert "outs(%arg1 : tensor<4xf32>)" in text
    assert "linalg.yield %1 : f32" in text
    assert not any(name in text for name in ("linalg.index", "arith.select", "arith.cmpf"))


def test_an_accumulator_that_a_result_reads_is_kept():
    text = rewritten(1, "tensor<4xi64>")
    assert "outs(%arg1, %arg2 : tensor<4xf32>, tensor<4xi64>)" in text
    assert "arith.maximumf" in text
