# RUN: %PYTHON %s | FileCheck %s
"""Layers of int8 call functions of CMSIS-NN on buffers; those that it rounds or pads otherwise stay, and those of state."""

from torch_mlir import ir

from fx_importer.mlir.bindings import load_dialects
from fx_importer.pipelines.native import cmsis_nn_layers
from fx_importer.pipelines.runner import run_stage

LAYER = """
func.func @{name}(%x: tensor<1x8x8x4xi8> {argument}) -> {result} {{
  %w = "tosa.const"() <{{values = dense<3> : tensor<{filter}xi8>}}> : () -> tensor<{filter}xi8>
  %b = "tosa.const"() <{{values = dense<[1, 2, 3, 4]> : tensor<4xi32>}}> : () -> tensor<4xi32>
  %zx = "tosa.const"() <{{values = dense<-7> : tensor<1xi8>}}> : () -> tensor<1xi8>
  %zw = "tosa.const"() <{{values = dense<{weight_zero}> : tensor<1xi8>}}> : () -> tensor<1xi8>
  %m = "tosa.const"() <{{values = dense<1073741824> : tensor<1xi32>}}> : () -> tensor<1xi32>
  %s = "tosa.const"() <{{values = dense<{shift}> : tensor<1xi8>}}> : () -> tensor<1xi8>
  %z = "tosa.const"() <{{values = dense<0> : tensor<1xi32>}}> : () -> tensor<1xi32>
  %zy = "tosa.const"() <{{values = dense<5> : tensor<1xi8>}}> : () -> tensor<1xi8>
  %sums = tosa.{op} %x, %w, %b, %zx, %zw {{acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: {pad}>,
      stride = array<i64: 1, 1>}} : (tensor<1x8x8x4xi8>, tensor<{filter}xi8>, tensor<4xi32>, tensor<1xi8>, tensor<1xi8>)
      -> tensor<1x8x{width}x4xi32>
  %y = tosa.rescale %sums, %m, %s, %z, %zy {{input_unsigned = false, output_unsigned = false, per_channel = false,
      rounding_mode = {rounding}, scale32 = true}} : (tensor<1x8x{width}x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>,
      tensor<1xi8>) -> tensor<1x8x{width}x4xi8>
  %c = tosa.clamp %y {{min_val = 5 : i8, max_val = 99 : i8}} : (tensor<1x8x{width}x4xi8>) -> tensor<1x8x{width}x4xi8>
  return {returned}
}}
"""
DEFAULTS = {
    "op": "conv2d",
    "filter": "4x3x3x4",
    "weight_zero": 0,
    "shift": 40,
    "pad": "1, 1, 1, 1",
    "width": 8,
    "argument": "",
    "rounding": "SINGLE_ROUND",
    "result": "tensor<1x8x8x4xi8>",
    "returned": "%c : tensor<1x8x8x4xi8>",
}
LAYERS = {
    "convolution": {},
    "depthwise": {"op": "depthwise_conv2d", "filter": "3x3x4x1"},
    "large_scale": {"shift": 31},
    "two_roundings": {"rounding": "DOUBLE_ROUND"},
    "asymmetric_weights": {"weight_zero": 1},
    "two_columns_after": {
        "op": "depthwise_conv2d",
        "filter": "3x3x4x1",
        "pad": "1, 1, 1, 2",
        "width": 9,
        "result": "tensor<1x8x9x4xi8>",
        "returned": "%c : tensor<1x8x9x4xi8>",
    },
    "pixels_after": {
        "filter": "4x1x1x4",
        "pad": "0, 0, 0, 1",
        "width": 9,
        "result": "tensor<1x8x9x4xi8>",
        "returned": "%c : tensor<1x8x9x4xi8>",
    },
    "state": {
        "argument": '{fx_importer.state = "s"}',
        "result": '(tensor<1x8x8x4xi8> {fx_importer.state = "s"})',
    },
    "sums_are_read": {
        "result": "(tensor<1x8x8x4xi8>, tensor<1x8x8x4xi32>)",
        "returned": "%c, %sums : tensor<1x8x8x4xi8>, tensor<1x8x8x4xi32>",
    },
}

with ir.Context() as context:
    load_dialects(context)
    texts = [LAYER.format(**(DEFAULTS | {"name": name} | options)) for name, options in LAYERS.items()]
    module = ir.Module.parse("\n".join(texts))
    for stage in cmsis_nn_layers("net").stages:
        run_stage(stage, module)
    print(module)

# CHECK: fx_importer.cmsis_nn_layers = "[{\22name\22: \22net_cmsis_nn_0\22, \22depthwise\22: false, \22image\22: [1, 8, 8, 4],
# CHECK-SAME: \22input_offset\22: 7, \22output_offset\22: 5, \22low\22: 5, \22high\22: 99,
# CHECK-SAME: \22shifts\22: [-9, -9, -9, -9]}
# CHECK-LABEL: func.func @convolution(
# CHECK-SAME: %[[X:.*]]: tensor
# CHECK: %[[IMAGE:.*]] = bufferization.to_buffer %[[X]] read_only
# CHECK: %[[WEIGHTS:.*]] = bufferization.to_buffer %{{.*}} read_only : tensor<4x3x3x4xi8>
# CHECK: %[[BIAS:.*]] = bufferization.to_buffer %{{.*}} read_only : tensor<4xi32>
# CHECK: %[[Y:.*]] = memref.alloc() : memref<1x8x8x4xi8>
# CHECK: %[[SCRATCH:.*]] = memref.alloc() : memref<256xi8>
# CHECK: %[[STATUS:.*]] = call @net_cmsis_nn_0(%[[IMAGE]], %[[WEIGHTS]], %[[BIAS]], %[[Y]], %[[SCRATCH]])
# CHECK: %[[HOLDS:.*]] = arith.cmpi eq, %[[STATUS]]
# CHECK: cf.assert %[[HOLDS]]
# CHECK: %[[RESULT:.*]] = bufferization.to_tensor %[[Y]] restrict
# CHECK: return %[[RESULT]]
# CHECK-LABEL: func.func @depthwise(
# CHECK-NOT: tosa.clamp
# CHECK: call @net_cmsis_nn_1
# CHECK-LABEL: func.func @large_scale(
# CHECK: tosa.conv2d
# CHECK-LABEL: func.func @two_roundings(
# CHECK: tosa.conv2d
# CHECK-LABEL: func.func @asymmetric_weights(
# CHECK: tosa.conv2d
# CHECK-LABEL: func.func @two_columns_after(
# CHECK: tosa.depthwise_conv2d
# CHECK-LABEL: func.func @pixels_after(
# CHECK: tosa.conv2d
# CHECK-LABEL: func.func @state(
# CHECK: tosa.conv2d
# CHECK-LABEL: func.func @sums_are_read(
# CHECK: tosa.conv2d
# CHECK-NOT: call
