# RUN: %PYTHON %s | FileCheck %s
"""Loops with a trip count, with and without a condition; one whose regions capture nothing."""

from fx_importer.mlir.bindings import ir, new_context
from fx_importer.pipelines import run_text

TEXT = """
func.func @counted(%x: !torch.vtensor<[],f32>) -> !torch.vtensor<[],f32> {
  %turns = torch.constant.int 7
  %true = torch.constant.bool true
  %0 = torch.prim.Loop %turns, %true, init(%x) {
  ^bb0(%i: !torch.int, %a: !torch.vtensor<[],f32>):
    %1 = torch.aten.mul.Scalar %a, %i : !torch.vtensor<[],f32>, !torch.int -> !torch.vtensor<[],f32>
    torch.prim.Loop.condition %true, iter(%1 : !torch.vtensor<[],f32>)
  } : (!torch.int, !torch.bool, !torch.vtensor<[],f32>) -> !torch.vtensor<[],f32>
  return %0 : !torch.vtensor<[],f32>
}
func.func @both(%turns: !torch.int, %go: !torch.bool, %x: !torch.int) -> !torch.int {
  %0 = torch.prim.Loop %turns, %go, init(%x) {
  ^bb0(%i: !torch.int, %a: !torch.int):
    %1 = torch.aten.mul.int %a, %a : !torch.int, !torch.int -> !torch.int
    %2 = torch.aten.Bool.int %1 : !torch.int -> !torch.bool
    torch.prim.Loop.condition %2, iter(%1 : !torch.int)
  } : (!torch.int, !torch.bool, !torch.int) -> !torch.int
  return %0 : !torch.int
}
func.func @endless() {
  %turns = torch.constant.int 9223372036854775807
  %true = torch.constant.bool true
  torch.prim.Loop %turns, %true, init() {
  ^bb0(%i: !torch.int):
    torch.prim.Loop.condition %true, iter()
  } : (!torch.int, !torch.bool) -> ()
  return
}
"""
for step in ("fx-importer-control-flow-to-tosa", "fx-importer-control-flow-to-scf"):
    module = ir.Module.parse(TEXT, new_context())
    run_text(f"builtin.module({step})", module)
    print(module)

# CHECK-LABEL: @counted
# CHECK: %[[ZERO:.*]] = torch.vtensor.literal(dense<0> : tensor<si32>)
# CHECK: %[[START:.*]] = torch_c.to_builtin_tensor %[[ZERO]] : !torch.vtensor<[],si32> -> tensor<i32>
# CHECK: tosa.while_loop (%[[I:.*]] = %[[START]], %{{.*}} = %{{.*}}) : (tensor<i32>, tensor<f32>) -> (tensor<i32>, tensor<f32>) {
# CHECK: %[[COUNT:.*]] = torch_c.from_builtin_tensor %[[I]]
# CHECK: %[[BOUND:.*]] = torch.vtensor.literal(dense<7> : tensor<si32>)
# CHECK: torch.aten.lt.Tensor %[[COUNT]], %[[BOUND]]
# CHECK: } do {
# CHECK: %[[NOW:.*]] = torch_c.from_builtin_tensor
# CHECK: %[[NEXT:.*]] = torch.aten.add.Scalar %[[NOW]]
# CHECK: %[[INT:.*]] = torch.aten.Int.Tensor %[[NOW]]
# CHECK: torch.aten.mul.Scalar %{{.*}}, %[[INT]]
# CHECK-LABEL: @both
# CHECK: tosa.while_loop {{.*}} : (tensor<i1>, tensor<i64>, tensor<i64>) -> (tensor<i1>, tensor<i64>, tensor<i64>) {
# CHECK: torch.aten.lt.Tensor
# CHECK: torch.aten.logical_and
# CHECK-LABEL: @endless
# CHECK: tosa.while_loop : () -> () {
# CHECK: torch.vtensor.literal(dense<true> : tensor<i1>)

# CHECK-LABEL: @counted
# CHECK: torch.prim.Loop
# CHECK-LABEL: @both
# CHECK: scf.while {{.*}} : (i1, i64, i64) -> (i1, i64, i64) {
# CHECK: torch.aten.lt.int
# CHECK: torch.aten.__and__.bool
# CHECK-LABEL: @endless
# CHECK: torch.prim.Loop
