"""Sizes and scalars in StableHLO operations."""

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.pipelines import run_text


def rewritten(body: str) -> str:
    context = new_context()
    load_dialects(context)
    module = ir.Module.parse(body, context)
    run_text("builtin.module(fx-importer-scalars-to-stablehlo,cse,canonicalize)", module)
    return str(module)


def test_no_ops_are_removed():
    text = rewritten("""
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = stablehlo.abs %x : tensor<?x4xf32>
  %1 = shape.shape_of %0 : tensor<?x4xf32> -> tensor<2xindex>
  %2 = shape.shape_of %x : tensor<?x4xf32> -> tensor<2xindex>
  %w = shape.cstr_broadcastable %1, %2 : tensor<2xindex>, tensor<2xindex>
  %3 = shape.assuming %w -> (tensor<?x4xf32>) {
    %4 = shape.broadcast %1, %2 : tensor<2xindex>, tensor<2xindex> -> tensor<2xindex>
    %5 = stablehlo.dynamic_broadcast_in_dim %0, %4, dims = [0, 1]
      : (tensor<?x4xf32>, tensor<2xindex>) -> tensor<?x4xf32>
    %6 = stablehlo.add %5, %x : tensor<?x4xf32>
    shape.assuming_yield %6 : tensor<?x4xf32>
  }
  %n = shape.num_elements %1 : tensor<2xindex> -> index
  %c4 = arith.constant 4 : index
  %m = arith.divui %n, %c4 : index
  %s = tensor.from_elements %m, %c4 : tensor<2xindex>
  %7 = stablehlo.dynamic_reshape %3, %s : (tensor<?x4xf32>, tensor<2xindex>) -> tensor<?x4xf32>
  return %7 : tensor<?x4xf32>
}""")
    operations = [line.split(" = ")[1].split()[0] for line in text.splitlines() if " = stablehlo" in line]
    assert operations == ["stablehlo.abs", "stablehlo.add"]


def test_scalars_are_tensors_of_rank_0():
    text = rewritten("""
func.func @main(%n: i64, %x: f64, %b: i1) -> (i64, f64, index) {
  %i = arith.index_cast %n : i64 to index
  %y = arith.sitofp %n : i64 to f64
  %z = arith.select %b, %x, %y : f64
  %q = arith.floordivsi %n, %n : i64
  return %n, %z, %i : i64, f64, index
}""")
    assert "(%arg0: tensor<i64>, %arg1: tensor<f64>, %arg2: tensor<i1>)" in text
    assert "-> (tensor<i64>, tensor<f64>, tensor<i64>)" in text
    assert "arith" not in text


def test_unsupported_operation_is_reported():
    with pytest.raises(ir.MLIRError, match=r"'math.erf' has no form in StableHLO"):
        rewritten("func.func @main(%x: f32) -> f32 {\n %0 = math.erf %x : f32\n return %0 : f32 }")
