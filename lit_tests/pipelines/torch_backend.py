# RUN: %PYTHON %s | FileCheck %s
"""The torch backend form: calls inlined, composites decomposed, quantized patterns matched, ops without schema kept."""

from fx_importer.mlir.bindings import ir, new_context
from fx_importer.options import LoweringOptions
from fx_importer.pipelines import TORCH_BACKEND, run_stage

TEXT = """
func.func @main(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %0 = call @block(%x) : (!torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32>
  %1 = torch.aten.silu %0 : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  return %1 : !torch.vtensor<[2,3],f32>
}
func.func private @block(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %0 = torch.operator "torch.mylib.twice"(%x) : (!torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32>
  %1 = torch.aten.hardswish %0 : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  return %1 : !torch.vtensor<[2,3],f32>
}
func.func @quantized(%x: !torch.vtensor<[2,3],si8>) -> !torch.vtensor<[2,3],f32> {
  %scale = torch.constant.float 5.000000e-01
  %zero = torch.constant.int 0
  %low = torch.constant.int -128
  %high = torch.constant.int 127
  %dtype = torch.constant.int 1
  %0 = torch.operator "torch.quantized_decomposed.dequantize_per_tensor"(%x, %scale, %zero, %low, %high, %dtype) :
    (!torch.vtensor<[2,3],si8>, !torch.float, !torch.int, !torch.int, !torch.int, !torch.int) -> !torch.vtensor<[2,3],f32>
  return %0 : !torch.vtensor<[2,3],f32>
}
"""

for legal in ((), ("aten.silu", "torch.aten.hardswish")):
    module = ir.Module.parse(TEXT, new_context())
    (stage,) = TORCH_BACKEND(LoweringOptions(backend_legal_ops=legal)).stages
    print(stage)
    run_stage(stage, module)
    print(module)

# CHECK: builtin.module({{.*}}torch-decompose-complex-ops,
# CHECK-LABEL: func.func @main
# CHECK-NOT: call @block
# CHECK: torch.operator "torch.mylib.twice"
# CHECK-NOT: torch.aten.hardswish
# CHECK: torch.aten.sigmoid
# CHECK: torch.aten.mul.Tensor
# CHECK-NOT: @block
# CHECK-LABEL: func.func @quantized
# CHECK: torch.aten._make_per_tensor_quantized_tensor
# CHECK: torch.aten.dequantize.tensor

# CHECK: builtin.module({{.*}}torch-decompose-complex-ops{legal-ops=aten.silu,aten.hardswish}
# CHECK-LABEL: func.func @main
# CHECK: torch.aten.hardswish
# CHECK: torch.aten.silu
