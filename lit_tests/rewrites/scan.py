# RUN: %PYTHON %s | FileCheck %s
"""scan has a 32-bit counter in TOSA; it gathers the row of the iteration, and selects by position to write."""

import torch
from torch._higher_order_ops.scan import scan

from fx_importer import export_and_import


class Model(torch.nn.Module):
    def forward(self, x):
        return scan(lambda state, row: (state + row, state * row), x[0], x)


for output_type in ("tosa", "stablehlo"):
    print(export_and_import(Model(), torch.ones(4, 3), output_type=output_type))

# CHECK: %[[R:.*]]:4 = tosa.while_loop (%[[I:arg[0-9]+]] = %{{[0-9]+}}, %{{.*}}) : (tensor<i32>, tensor<3xf32>, tensor<4x3xf32>, tensor<4x3xf32>)
# CHECK: %[[BOUND:.*]] = "tosa.const"() <{values = dense<4> : tensor<i32>}>
# CHECK: tosa.greater %[[BOUND]], %[[I]] : (tensor<i32>, tensor<i32>)
# CHECK: } do {
# CHECK-DAG: tosa.gather
# CHECK-DAG: tosa.const{{.*}} tensor<4x1xi32>
# CHECK-DAG: %[[HERE:.*]] = tosa.equal
# CHECK-DAG: tosa.select %[[HERE]]
# CHECK: return %[[R]]#1, %[[R]]#2

# CHECK: stablehlo.while({{.*}}) : tensor<i64>, tensor<3xf32>, tensor<4x3xf32>
# CHECK: stablehlo.compare LT
# CHECK-DAG: stablehlo.gather
# CHECK-DAG: stablehlo.compare EQ
# CHECK-DAG: stablehlo.select
