"""Constants that conversions leave in another dialect."""

import pytest

from fx_importer.mlir.bindings import ir, new_context
from fx_importer.pipelines import run_text

TEXT = """
func.func @main() -> (tensor<2xf32>, tensor<i1>, tensor<3xindex>, i64) {
  %0 = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %1 = arith.constant dense<true> : tensor<i1>
  %2 = arith.constant dense<[1, 2, 3]> : tensor<3xindex>
  %3 = arith.constant 4 : i64
  return %0, %1, %2, %3 : tensor<2xf32>, tensor<i1>, tensor<3xindex>, i64
}
"""


@pytest.mark.parametrize("dialect, constant", [("tosa", "tosa.const"), ("stablehlo", "stablehlo.constant")])
def test_constants_of_the_target_dialect(dialect, constant):
    module = ir.Module.parse(TEXT, new_context())
    run_text(f"builtin.module(fx-importer-constants-to-{dialect})", module)
    assert str(module).count(constant) == 2
    assert str(module).count("arith.constant") == 2  # neither dialect has indices, or numbers outside of tensors


@pytest.mark.parametrize("element", ["f32", "i64", "complex<f32>"])
def test_uninitialized_tensors_are_zeros_in_stablehlo(element):
    kind = f"tensor<2x{element}>"
    text = f"func.func @main() -> {kind} {{ %0 = tensor.empty() : {kind} return %0 : {kind} }}"
    module = ir.Module.parse(text, new_context())
    run_text("builtin.module(fx-importer-constants-to-stablehlo)", module)
    (zeros, _) = module.body.operations[0].regions[0].blocks[0].operations
    assert zeros.operation.name == "stablehlo.constant"
    assert str(zeros.result.type) == kind
