# RUN: %PYTHON %s | FileCheck %s
"""Floats that are integral are not rounded again; others, also those of a clamp with fractions, are."""

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.rewrites import fold_tosa_rounding

MODULE = """
func.func @main(%x: tensor<4xf32>, %n: tensor<4xi32>) -> (tensor<4xi32>, tensor<4xf32>, tensor<4xf32>) {
  %shift = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %zero = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %half = "tosa.const"() <{values = dense<0.5> : tensor<1xf32>}> : () -> tensor<1xf32>
  %0 = tosa.floor %x : (tensor<4xf32>) -> tensor<4xf32>
  %1 = tosa.clamp %0 {min_val = 0.0 : f32, max_val = 7.0 : f32} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = tosa.floor %1 : (tensor<4xf32>) -> tensor<4xf32>
  %3 = tosa.ceil %1 : (tensor<4xf32>) -> tensor<4xf32>
  %4 = tosa.greater %zero, %1 : (tensor<1xf32>, tensor<4xf32>) -> tensor<4xi1>
  %5 = tosa.select %4, %3, %2 : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %6 = tosa.cast %5 : (tensor<4xf32>) -> tensor<4xi32>
  %7 = tosa.cast %n : (tensor<4xi32>) -> tensor<4xf32>
  %8 = tosa.mul %7, %1, %shift : (tensor<4xf32>, tensor<4xf32>, tensor<1xi8>) -> tensor<4xf32>
  %9 = tosa.ceil %8 : (tensor<4xf32>) -> tensor<4xf32>
  %10 = tosa.mul %7, %half, %shift : (tensor<4xf32>, tensor<1xf32>, tensor<1xi8>) -> tensor<4xf32>
  %11 = tosa.clamp %10 {min_val = 0.5 : f32, max_val = 7.0 : f32} : (tensor<4xf32>) -> tensor<4xf32>
  %12 = tosa.floor %11 : (tensor<4xf32>) -> tensor<4xf32>
  return %6, %9, %12 : tensor<4xi32>, tensor<4xf32>, tensor<4xf32>
}"""

context = new_context()
load_dialects(context)
module = ir.Module.parse(MODULE, context)
fold_tosa_rounding(module.operation)
assert module.operation.verify()
print(module)

# CHECK: tosa.floor
# CHECK-NEXT: %[[CLAMPED:.*]] = tosa.clamp
# CHECK-NOT: tosa.floor
# CHECK-NOT: tosa.ceil
# CHECK: tosa.cast %[[CLAMPED]]
# CHECK: %[[PRODUCT:.*]] = tosa.mul
# CHECK-NOT: tosa.ceil
# CHECK: tosa.mul
# CHECK: tosa.clamp
# CHECK-NEXT: %[[ROUNDED:.*]] = tosa.floor
# CHECK: return %{{.*}}, %[[PRODUCT]], %[[ROUNDED]]
