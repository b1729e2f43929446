# RUN: %PYTHON %s | FileCheck %s
"""Negations of int64 are subtractions from 0 on the way from TOSA to linalg."""

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.rewrites import tosa_wide_negations

MODULE = """
func.func @main(%x: tensor<2x3xi64>, %y: tensor<2xi32>) -> (tensor<2x3xi64>, tensor<2xi32>) {
  %zero64 = "tosa.const"() <{values = dense<0> : tensor<1xi64>}> : () -> tensor<1xi64>
  %zero32 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
  %0 = tosa.negate %x, %zero64, %zero64 : (tensor<2x3xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2x3xi64>
  %1 = tosa.negate %y, %zero32, %zero32 : (tensor<2xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  return %0, %1 : tensor<2x3xi64>, tensor<2xi32>
}"""

context = new_context()
load_dialects(context)
module = ir.Module.parse(MODULE, context)
tosa_wide_negations(module.operation)
assert module.operation.verify()
print(module)

# CHECK: func.func @main(%[[X:.*]]: tensor<2x3xi64>, %[[Y:.*]]: tensor<2xi32>)
# CHECK: %[[ZERO:.*]] = "tosa.const"() <{values = dense<0> : tensor<1x1xi64>}>
# CHECK-NEXT: %[[WIDE:.*]] = tosa.sub %[[ZERO]], %[[X]]
# CHECK-NOT: tosa.sub
# CHECK: %[[SHORT:.*]] = tosa.negate %[[Y]]
# CHECK: return %[[WIDE]], %[[SHORT]]
