// RUN: %fx-importer opt %s --pipeline npu_plugin.passes:mark_vector_operations | FileCheck %s

// CHECK-LABEL: func.func @few
// CHECK: tosa.add %arg0, %arg0 {npu.lanes = 6 : i32}
func.func @few(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = tosa.add %x, %x : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @many
// CHECK: tosa.add %arg0, %arg0 {npu.lanes = 16 : i32}
func.func @many(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = tosa.add %x, %x : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}
