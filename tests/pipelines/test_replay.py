"""Replay of a pipeline on a file."""

import pytest

from fx_importer.pipelines.replay import main

TM_TENSOR = """
func.func @main(%x: tensor<4xf32>, %i: tensor<4xi64>) -> (tensor<4xf32>, tensor<4xi64>) {
  %0:2 = tm_tensor.sort dimension(0) outs(%x, %i : tensor<4xf32>, tensor<4xi64>) {
  ^bb0(%a: f32, %b: f32, %c: i64, %d: i64):
    %1 = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %1 : i1
  } -> tensor<4xf32>, tensor<4xi64>
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xi64>
}
"""
CHLO = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


@pytest.mark.parametrize(
    "text, passes, code, message",
    [
        (TM_TENSOR, "cse", 0, ""),
        (CHLO, "func.func(chlo-legalize-to-stablehlo)", 0, ""),
        (CHLO, "torch-verify-linalg-on-tensors-backend-contract", 1, "error: failed to legalize operation 'chlo.erf'"),
        ("func.func @main() -> i32 { return }", "cse", 1, "error: 'func.return' op has 0 operands"),
    ],
    ids=["tm_tensor", "chlo", "a failure", "an invalid file"],
)
def test_replay(text, passes, code, message, tmp_path, capfd):
    path = tmp_path / "before.mlir"
    path.write_text(text)
    assert main([str(path), f"builtin.module({passes})"]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "" if code == 0 else message in err
