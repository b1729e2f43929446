# RUN: %PYTHON %s | FileCheck %s
"""A user's output type: its passes run at their positions, and its operations need no registered dialect."""

import torch

from fx_importer import OutputType, export_and_import, pipeline_for
from fx_importer.mlir.bindings import ir


def tanh_to_npu(module):
    """Rewrite tosa.tanh to npu.tanh."""
    found = []

    def see(op):
        if op.name == "tosa.tanh":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(see)
    for op in found:
        kinds = [result.type for result in op.results]
        new = ir.Operation.create("npu.tanh", kinds, list(op.operands), loc=op.location, ip=ir.InsertionPoint(op))
        op.results[0].replace_all_uses_with(new.results[0])
        op.erase()


OutputType.define("npu", base="tosa", pipeline=lambda p: p.after("tosa", tanh_to_npu), allows={"npu", "tosa"})
for stage in pipeline_for("npu").stages:
    print(f"{stage.name}: {stage.description} {stage if stage.name in ('tanh_to_npu', 'contract') else ''}")
print(export_and_import(lambda x: torch.tanh(x) + 1, torch.ones(2), output_type="npu"))

# CHECK: torch-backend:
# CHECK: tosa: Torch ops are lowered to TOSA.
# CHECK-NEXT: tanh_to_npu: Rewrite tosa.tanh to npu.tanh. builtin.module(fx-importer-python{tanh_to_npu})
# CHECK-NEXT: tosa-simplify:
# CHECK: contract: Every op is legal for the output type. builtin.module(fx-importer-check-npu-contract{npu,tosa})

# CHECK: func.func @main(%[[X:.*]]: tensor<2xf32>{{.*}}) -> tensor<2xf32>
# CHECK: %[[TANH:.*]] = "npu.tanh"(%[[X]]) : (tensor<2xf32>) -> tensor<2xf32>
# CHECK: tosa.add %[[TANH]], %{{.*}} : (tensor<2xf32>, tensor<1xf32>) -> tensor<2xf32>
# CHECK-NOT: torch
